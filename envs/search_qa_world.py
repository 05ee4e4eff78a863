"""Made-up worlds for search_qa: things with names that exist nowhere else, what holds of them, and a passage about each.

A world is a pure function of its number. Nothing in it can be known beforehand: every answer must be looked up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

COUNTS = {"country": 5, "city": 16, "river": 8, "lake": 4, "person": 36, "company": 18, "book": 20, "museum": 10}
FIRST_NAMES = (
    *("Ada", "Bela", "Cleo", "Dario", "Edda", "Filip", "Greta", "Hanno", "Irma", "Jorin", "Kaya", "Leon"),
    *("Mira", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sven", "Tilda", "Urs", "Vera", "Wanda", "Yara"),
)
ADJECTIVES = ("Silent", "Golden", "Broken", "Distant", "Hidden", "Last", "Northern", "Paper", "Restless", "Winter")
NOUNS = ("Bridge", "Garden", "Harbor", "Island", "Letter", "Lantern", "Mirror", "Orchard", "Stranger", "Tower")
ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "h", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "z")
VOWELS = ("a", "e", "i", "o", "u", "ai", "au", "ea", "ou")
ENDS = ("", "l", "m", "n", "r", "s", "th", "x")
NAMING = {
    "country": "{}ia",
    "city": "{}",
    "river": "the river {}",
    "lake": "Lake {}",
    "company": "{} Works",
    "museum": "the {} Museum",
}
NOTHING = "Nothing more is known of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What can hold of a thing. Every thing of the kind has it, with exactly one value."""

    of: str
    """A kind."""
    gives: str
    """A kind, "year" or "language"."""
    ask: str
    noun: str
    says: tuple[str, ...]


def _r(of: str, gives: str, ask: str, noun: str, *says: str) -> Relation:
    return Relation(of=of, gives=gives, ask=ask, noun=noun, says=says)


RELATIONS: Mapping[str, Relation] = {
    "birthplace": _r("person", "city", "In which city was {} born?", "the birthplace of {}",
                     "{s} was born in {o}.", "{s} comes from {o}."),
    "employer": _r("person", "company", "For which company does {} work?", "the employer of {}",
                   "{s} works for {o}.", "{s} has a post at {o}."),
    "birth_year": _r("person", "year", "In which year was {} born?", "the birth year of {}",
                     "{s} was born in {o}.", "The birth of {s} was in {o}."),
    "country": _r("city", "country", "In which country is {}?", "the country of {}",
                  "{s} lies in {o}.", "{s} is a city of {o}."),
    "river": _r("city", "river", "Which river flows through {}?", "the river that flows through {}",
                "{s} stands on {o}.", "Through {s} flows {o}."),
    "mayor": _r("city", "person", "Who is the mayor of {}?", "the mayor of {}",
                "{s} is governed by {o}.", "The mayor of {s} is {o}."),
    "capital": _r("country", "city", "What is the capital of {}?", "the capital of {}",
                  "The capital of {s} is {o}.", "{s} is governed from its capital {o}."),
    "language": _r("country", "language", "Which language is spoken in {}?", "the language of {}",
                   "People in {s} speak {o}.", "The language of {s} is {o}."),
    "mouth": _r("river", "lake", "Into which lake does {} flow?", "the lake that {} flows into",
                "{s} flows into {o}.", "{s} ends in {o}."),
    "founder": _r("company", "person", "Who founded {}?", "the founder of {}",
                  "{s} was founded by {o}.", "{o} started {s}."),
    "office": _r("company", "city", "In which city does {} have its head office?", "the city with the head office of {}",
                 "{s} has its head office in {o}.", "{s} is run from {o}."),
    "founded": _r("company", "year", "In which year was {} founded?", "the founding year of {}",
                  "{s} exists since {o}.", "{s} was founded in {o}."),
    "author": _r("book", "person", "Who wrote {}?", "the author of {}",
                 "{s} was written by {o}.", "{o} wrote {s}."),
    "publisher": _r("book", "company", "Which company published {}?", "the publisher of {}",
                    "{s} was published by {o}.", "{o} brought {s} out."),
    "architect": _r("museum", "person", "Who was the architect of {}?", "the architect of {}",
                    "{s} was built by {o}.", "{o} drew the plans of {s}."),
    "location": _r("museum", "city", "In which city is {}?", "the city of {}",
                   "{s} is in {o}.", "Visitors find {s} in {o}."),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class World:
    """Things and facts.

    >>> world(7) is world(7), len(world(7).passages) == sum(COUNTS.values())
    (True, True)
    """

    kinds: Mapping[str, str]
    """name -> kind."""
    facts: Mapping[tuple[str, str], str]
    """(name, relation) -> value."""
    passages: list[dict[str, str]]
    """One about each thing, with its name as the title."""

    def alike(self, value: str) -> frozenset[str]:
        """All that it could be taken for: things of its kind, or years, or languages."""
        if value.isdigit():
            return YEARS
        kind = self.kinds.get(value)
        if kind is not None:
            return frozenset(name for name, own in self.kinds.items() if own == kind)
        return frozenset(own for own in self.facts.values() if own not in self.kinds and not own.isdigit())


YEARS = frozenset(map(str, range(1000, 3000)))


@lru_cache(maxsize=64)  # siblings, and the steps of an episode, share one
def world(number: int) -> World:
    """The world of that number."""
    rng = random.Random(f"search_qa world {number}")
    roots = _roots(rng)
    of_kind = {kind: [_name(kind, next(roots), rng) for _ in range(count)] for kind, count in COUNTS.items() if kind != "book"}
    of_kind["book"] = rng.sample([f'"The {adjective} {noun}"' for adjective in ADJECTIVES for noun in NOUNS], COUNTS["book"])
    kinds = {name: kind for kind, names in of_kind.items() for name in names}
    of_kind["year"] = [str(year) for year in range(1820, 1990)]
    of_kind["language"] = [f"{next(roots)}ish" for _ in range(COUNTS["country"])]
    facts = _facts(of_kind, rng)
    return World(kinds=kinds, facts=facts, passages=[_passage(name, facts, rng) for name in kinds])


def _facts(of_kind: Mapping[str, Sequence[str]], rng: random.Random) -> dict[tuple[str, str], str]:
    facts = {
        (thing, name): rng.choice(of_kind[relation.gives])
        for name, relation in RELATIONS.items()
        for thing in of_kind[relation.of]
    }
    for country, city in zip(of_kind["country"], of_kind["city"], strict=False):  # a capital lies in its country
        facts[country, "capital"], facts[city, "country"] = city, country
    return facts


def _passage(name: str, facts: Mapping[tuple[str, str], str], rng: random.Random) -> dict[str, str]:
    own = [(relation, value) for (thing, relation), value in facts.items() if thing == name]
    rng.shuffle(own)
    texts = [rng.choice(RELATIONS[relation].says).format(s=name, o=value) for relation, value in own]
    return {"title": name, "text": " ".join(text[:1].upper() + text[1:] for text in texts or [NOTHING])}


def _name(kind: str, root: str, rng: random.Random) -> str:
    return f"{rng.choice(FIRST_NAMES)} {root}" if kind == "person" else NAMING[kind].format(root)


def _roots(rng: random.Random) -> Iterator[str]:
    """Made-up words, none twice: no name is a part of another."""
    seen: set[str] = set()
    while True:
        root = "".join(map(rng.choice, (ONSETS, VOWELS, ONSETS, VOWELS, ENDS))).capitalize()
        if root not in seen:
            seen.add(root)
            yield root
