"""ceilings.py - what this machine can do at most, measured in the same run: copy bandwidth, matrix rate, smallest
kernel, bare launch. Each is a results line of op "ceiling".
"""

import ctypes

import torch

from . import timing

EMPTY_PTX = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry empty(.param .align 8 .b8 params[%d])
{
    ret;
}
"""


def copy_lines(samples, gib=2):
    source, target = (torch.empty(gib << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    source.random_()
    times = timing.eager(lambda: target.copy_(source), samples)  # in a graph a copy of this size may be a copy engine's
    yield dict(
        op="ceiling", impl="copy", case=f"copy_{gib}GiB", gbps=2 * (gib << 30) / times["median_us"] / 1e3, **times
    )


def gemm_lines(samples, sustained_s, n=8192):
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        times = timing.Graph([lambda a=a, b=b, out=out: torch.matmul(a, b, out=out)]).measure(samples, sustained_s)
        yield dict(
            op="ceiling", impl="gemm", dtype=name, case=f"gemm_{n}", tflops=2 * n**3 / times["median_us"] / 1e6, **times
        )


class Launch:
    """cuLaunchKernel of an empty kernel with so many bytes of parameters, by ctypes, as gdn_jit calls its library."""

    def __init__(self, param_bytes):
        cuda = ctypes.CDLL("libcuda.so.1")
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        torch.cuda.current_stream()  # the primary context is there and current
        self.must(cuda.cuModuleLoadData(ctypes.byref(self.module), EMPTY_PTX % param_bytes))
        self.must(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"empty"))
        params = ctypes.create_string_buffer(param_bytes)
        self.keep = (params, (ctypes.c_void_p * 1)(ctypes.addressof(params)))
        launch = cuda.cuLaunchKernel
        launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.launch, self.args = launch, (self.function, 1, 1, 1, 1, 1, 1, 0)

    @staticmethod
    def must(status):
        if status:
            raise RuntimeError(f"the CUDA driver says {status}")

    def __call__(self):
        self.must(self.launch(*self.args, torch.cuda.current_stream().cuda_stream, self.keep[1], None))


def launch_lines(samples, param_bytes=256):
    launch = Launch(param_bytes)
    times = timing.Graph([launch] * 64).measure(samples, 0)
    yield dict(op="ceiling", impl="empty-kernel", case="empty_kernel_in_graph", **times)
    yield dict(
        op="ceiling",
        impl="bare-launch",
        case=f"bare_launch_{param_bytes}",
        param_bytes=param_bytes,
        **timing.host([launch], samples=samples),
    )


def lines(samples, sustained_s):
    yield from copy_lines(samples)
    yield from gemm_lines(samples, sustained_s)
    yield from launch_lines(samples)
