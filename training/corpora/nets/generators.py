"""Image generators: super-resolution (EDSR, FSRCNN, ESPCN, SRGAN), DnCNN, DCGAN, a VAE decoder, an autoencoder."""

from torch import nn

from costmodel.training.corpora.nets.blocks import Residual, conv, conv_bn, conv_bn_relu, conv_relu, upsample
from costmodel.training.corpora.nets.layers import Attention, Permuted, Rearranged

__all__ = ["autoencoder", "dcgan", "dncnn", "edsr", "espcn", "fsrcnn", "srgan", "vae_decoder"]


def edsr(blocks: int, width: int, factor: int) -> nn.Module:
    """Returns EDSR (Lim et al. 2017), which enlarges images by `factor` with residual blocks without normalisation.

    The baseline of the paper has 16 blocks of 64 channels.
    """
    body = [Residual(nn.Sequential(conv_relu(width, width), conv(width, width, bias=True))) for _ in range(blocks)]
    return nn.Sequential(
        conv(3, width, bias=True), Residual(nn.Sequential(*body, conv(width, width, bias=True))),
        conv(width, width * factor**2, bias=True), nn.PixelShuffle(factor), conv(width, 3, bias=True),
    )  # fmt: skip


def fsrcnn(factor: int) -> nn.Module:
    """Returns FSRCNN (Dong et al. 2016; d = 56, s = 12, m = 4), which enlarges the luminance of images by `factor`."""
    mapping = [layer for _ in range(4) for layer in (conv(12, 12, bias=True), nn.PReLU(12))]
    return nn.Sequential(
        conv(1, 56, 5, bias=True), nn.PReLU(56), conv(56, 12, 1, bias=True), nn.PReLU(12), *mapping,
        conv(12, 56, 1, bias=True), nn.PReLU(56),
        nn.ConvTranspose2d(56, 1, 9, factor, 4, output_padding=factor - 1),
    )  # fmt: skip


def espcn(factor: int) -> nn.Module:
    """Returns ESPCN (Shi et al. 2016), which enlarges the luminance by sub-pixel convolution (pixel shuffle)."""
    return nn.Sequential(
        conv(1, 64, 5, bias=True), nn.Tanh(), conv(64, 32, bias=True), nn.Tanh(), conv(32, factor**2, bias=True),
        nn.PixelShuffle(factor),
    )  # fmt: skip


def srgan(blocks: int) -> nn.Module:
    """Returns the generator of SRGAN (Ledig et al. 2016), which multiplies the height and width of images by 4."""
    body = [Residual(nn.Sequential(*conv_bn(64, 64), nn.PReLU(), *conv_bn(64, 64))) for _ in range(blocks)]
    larger = [layer for _ in range(2) for layer in (conv(64, 256, bias=True), nn.PixelShuffle(2), nn.PReLU())]
    return nn.Sequential(
        conv(3, 64, 9, bias=True), nn.PReLU(), Residual(nn.Sequential(*body, *conv_bn(64, 64))), *larger,
        conv(64, 3, 9, bias=True), nn.Tanh(),
    )  # fmt: skip


def dncnn(depth: int) -> nn.Module:
    """Returns DnCNN (Zhang et al. 2016), which predicts the noise of a grey image and subtracts it."""
    inner = [conv_bn_relu(64, 64) for _ in range(depth - 2)]
    return Residual(nn.Sequential(conv_relu(1, 64), *inner, conv(64, 1)))


def dcgan(width: int) -> nn.Module:
    """Returns the generator of DCGAN (Radford et al. 2015), which makes images of 64 x 64 from 100 random numbers."""
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(100, 8 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU()
    ]  # fmt: skip
    for outs in (4 * width, 2 * width, width):
        layers += [nn.ConvTranspose2d(2 * outs, outs, 4, 2, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def _normed(ins: int, outs: int) -> nn.Module:
    branch = nn.Sequential(
        nn.GroupNorm(16, ins), nn.SiLU(), conv(ins, outs, bias=True), nn.GroupNorm(16, outs), nn.SiLU(),
        conv(outs, outs, bias=True),
    )  # fmt: skip
    return Residual(branch, None if ins == outs else conv(ins, outs, 1, bias=True))


def vae_decoder(width: int, side: int) -> nn.Module:
    """Returns a narrow variant of the decoder of latent diffusion (Rombach et al. 2021), from latent maps to images.

    It has attention in the middle and then doubles the height and width three times.

    Args:
        width: Channels at the full size; 128 in the original.
        side: Height and width of the latent map, an eighth of those of the image.
    """
    middle = 4 * width
    attend = Residual(
        nn.Sequential(
            nn.GroupNorm(16, middle), nn.Flatten(2), Permuted(Attention(middle, 1)), nn.Unflatten(2, (side, side))
        )
    )
    layers: list[nn.Module] = [conv(4, middle, bias=True), _normed(middle, middle), attend, _normed(middle, middle)]
    ins = middle
    for outs in (middle, 2 * width, width):
        layers += [_normed(ins, outs), _normed(outs, outs), upsample(), conv(outs, outs, bias=True)]
        ins = outs
    return nn.Sequential(*layers, nn.GroupNorm(16, width), nn.SiLU(), conv(width, 3, bias=True))


def autoencoder(side: int, width: int, code: int) -> nn.Module:
    """Returns a convolutional autoencoder for anomaly detection.

    Strided convolutions lead from images of `side` x `side` to a vector of `code` numbers, transposed ones lead back.
    """
    corner = side // 16
    down: list[nn.Module] = []
    up: list[nn.Module] = []
    ins = 3
    for outs in (width, 2 * width, 4 * width, 8 * width):
        down += [conv(ins, outs, 4, 2, padding=1, bias=True), nn.LeakyReLU(0.2)]
        last = nn.Sigmoid() if ins == 3 else nn.ReLU()
        up = [nn.ConvTranspose2d(outs, ins, 4, 2, 1), last, *up]
        ins = outs
    flat = ins * corner**2
    narrow = (nn.Flatten(), nn.Linear(flat, code), nn.Linear(code, flat), nn.ReLU())
    return nn.Sequential(*down, Rearranged(0, 2, 3, 1), *narrow, nn.Unflatten(1, (ins, corner, corner)), *up)
