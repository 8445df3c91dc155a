"""What the networks in plain torch are made of, where a GPU takes another way than a CPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from framenest.scorers.torch_networks import _fast_kernels, patches  # noqa: E402


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
def test_settings_of_torch_are_as_they_were_afterwards(before):
    torch.backends.cuda.enable_cudnn_sdp(before)
    try:
        with _fast_kernels(torch.float16):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
            assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
        assert not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
