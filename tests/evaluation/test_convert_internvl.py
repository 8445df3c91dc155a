"""benchmarks/convert_internvl.py, with tiny random weights under the names of InternVL's own code."""

import json
import runpy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
import random_internvl  # noqa: E402 - after the checks

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "convert_internvl.py"


@pytest.fixture(scope="module")
def main():
    return runpy.run_path(str(SCRIPT))["main"]


@pytest.fixture
def folders(tmp_path):
    """The checkpoint to convert, and one of transformers' format with other weights."""
    like, own = tmp_path / "like", tmp_path / "own"
    random_internvl.save(like)
    (like / "preprocessor_config.json").write_text("{}")
    expected = random_internvl.save_own_format(own)
    return own, like, expected


def arguments(own, like):
    return [str(own), "--like", str(like), "-o", str(own.with_name("made"))]


def logits(model):
    torch.manual_seed(2)
    size, image = random_internvl.SIZE, random_internvl.SPECIAL.index("<IMG_CONTEXT>")
    tokens = torch.tensor([[1, 40, *[image] * 2 * random_internvl.TOKENS, 50, 60]])
    with torch.inference_mode():
        return model(input_ids=tokens, pixel_values=torch.randn(2, 3, size, size)).logits


def test_the_converted_model_gives_the_same_logits(main, folders, capsys):
    own, like, expected = folders
    main(arguments(own, like))
    assert capsys.readouterr().out.startswith("model-1.safetensors: ")
    made, loading = transformers.InternVLForConditionalGeneration.from_pretrained(
        own.with_name("made"), output_loading_info=True
    )
    assert not any(loading.values())  # nothing is missing, left over or of another shape
    assert torch.equal(logits(made.eval()), logits(expected))
    other = transformers.InternVLForConditionalGeneration.from_pretrained(like).eval()
    assert not torch.allclose(logits(other), logits(expected), atol=0.1)
    assert (own.with_name("made") / "preprocessor_config.json").is_file()


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", ("llm_config", "num_attention_heads", 8), "llm_config.num_attention_heads is 8 in"),
        ("config.json", ("vision_config", "hidden_act", "relu"), "vision_config.hidden_act is relu in"),
        (
            "tokenizer_config.json",
            ("added_tokens_decoder", "5", {"content": "<x>"}),
            "<IMG_CONTEXT> is token None",
        ),
    ],
)
def test_another_model_is_refused(main, folders, file, change, said):
    own, like, _ = folders
    data = json.loads((own / file).read_text())
    data[change[0]][change[1]] = change[2]
    (own / file).write_text(json.dumps(data))
    with pytest.raises(SystemExit, match=said):
        main(arguments(own, like))


def test_missing_and_unknown_weights_are_refused(main, folders):
    from safetensors.torch import load_file, save_file

    own, like, _ = folders
    first = load_file(own / "model-1.safetensors")
    save_file(first | {"mlp1.7.weight": torch.zeros(3)}, own / "model-1.safetensors")
    with pytest.raises(SystemExit, match=r"mlp1.7.weight: \(3,\) in .*, None in"):
        main(arguments(own, like))
    (own / "model-1.safetensors").unlink()
    with pytest.raises(SystemExit, match=r"lacks \d+ weights, such as"):
        main(arguments(own, like))
