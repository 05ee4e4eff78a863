"""Questions for search_qa: chains of facts through a made-up world, as long as the level says."""

from __future__ import annotations

import random

from .drawn import Family, Puzzle
from .search_qa_world import RELATIONS, World, world

LEVELS = (1, 2, 3, 4)
"""Facts that an answer takes."""
WORLDS = 10**6


def sketch(level: int, rng: random.Random) -> int:
    """The number of a world: a whole world is trained on or held out, so that no fact of one is known from the other."""
    return rng.randrange(WORLDS)


def finish(level: int, number: int, rng: random.Random) -> Puzzle:
    place = world(number)
    path, relations = chain(place, level, rng)
    thing = path[0]
    for relation in relations[:-1]:
        thing = RELATIONS[relation].noun.format(thing)
    question = RELATIONS[relations[-1]].ask.format(thing)
    return Puzzle(prompt=question, public={"world": number}, secret={"answer": path[-1], "path": path, "relations": relations})


def chain(place: World, length: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """(things, relations between them): each thing comes once, so that no step goes back."""
    while True:
        path, relations = [rng.choice(list(place.kinds))], list[str]()
        while len(relations) < length:
            own = [name for name, relation in RELATIONS.items() if relation.of == place.kinds.get(path[-1])]
            if not own:  # a year, a language, a lake: nothing more is said of it
                break
            relations.append(rng.choice(own))
            path.append(place.facts[path[-1], relations[-1]])
        if len(relations) == length and len(set(path)) == len(path):
            return path, relations


FAMILY = Family(name="search_qa", levels=LEVELS, sketch=sketch, finish=finish, key=str)
