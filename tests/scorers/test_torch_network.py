"""What the networks in plain torch are made of, where a GPU takes another way than a CPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from framenest.scorers.torch_scorer import TorchNetwork, attention_without_plans, patches  # noqa: E402


@pytest.mark.parametrize(("height", "width"), [(28, 42), (30, 45)])  # the second leaves a rest
def test_patches_times_the_kernel_are_its_convolution(height, width):
    torch.manual_seed(0)
    pixels, kernel = torch.randn(2, 3, height, width).double(), torch.randn(5, 3, 14, 14).double()
    bias = torch.randn(5).double()
    expected = torch.conv2d(pixels, kernel, bias, stride=14).flatten(2).transpose(1, 2)
    found = torch.nn.functional.linear(patches(pixels, 14), kernel.flatten(1), bias)
    assert found.shape == expected.shape == (2, 6, 5)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("before", [True, False])
def test_attention_is_as_it_was_afterwards(before):
    torch.backends.cuda.enable_cudnn_sdp(before)
    try:
        with attention_without_plans():
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_gelu_of_a_product_is_both_steps():
    torch.manual_seed(0)
    weights = {"fc.weight": torch.randn(7, 5), "fc.bias": torch.randn(7)}
    x = torch.randn(2, 3, 5)
    both = torch.nn.functional.gelu(torch.nn.functional.linear(x, weights["fc.weight"], weights["fc.bias"]))
    assert torch.equal(TorchNetwork(weights, {})._linear_gelu(x, "fc"), both)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_a_gpu_gelu_in_one_step_is_as_close_to_float32_as_in_two(dtype):
    torch.manual_seed(0)
    exact = {"fc.weight": torch.randn(512, 256).cuda() / 16, "fc.bias": torch.randn(512).cuda()}
    half = {name: weight.to(dtype) for name, weight in exact.items()}
    x = torch.randn(4, 64, 256).cuda().to(dtype)
    truth = TorchNetwork({name: weight.float() for name, weight in half.items()}, {})
    expected = truth._linear_gelu(x.float(), "fc")
    two_steps = torch.nn.functional.gelu(torch.nn.functional.linear(x, half["fc.weight"], half["fc.bias"]))
    one_step = TorchNetwork(half, {})._linear_gelu(x, "fc")
    assert one_step.shape == two_steps.shape == (4, 64, 512)
    errors = [(found.float() - expected).abs() for found in (one_step, two_steps)]
    assert errors[0].max() < errors[1].max() + 1e-3
    assert errors[0].mean() < 2 * errors[1].mean()
