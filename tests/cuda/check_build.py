#!/usr/bin/env python3
"""check_build.py - what nvcc made of the kernels, read from its output, without a GPU.

usage: check_build.py CHECK OPTION...

  resources   every kernel, for every architecture: no spills, at most 128 registers, no more
              shared memory than 48 KiB
  archs       the plugin holds code for exactly the architectures that were asked for; and if they
              begin with 75, as all of them do, every GPU from 7.5 on runs some of it
  links       the program knows no CUDA library, the plugin no shared one, and has no run path
  symbols     the plugin shows one symbol
  ptx         128-bit loads and vector additions stand in the code of those kernels that promise them
  sass        the same in machine code (needs cuobjdump)
  self-test   the checks find what they are to find, in texts that are wrong

Exit codes: 0 as it should be; 1 not; 2 wrong usage; 77 cannot be checked here, with the reason.
"""

import argparse
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

MAX_REGISTERS = 128
MAX_SHARED = 48 * 1024
SECONDS = 300  # of one compilation
ENTRY = "passel_accelerator_v1"

# Kernel (a pattern in its mangled name) -> what its code must hold. Loads of parameters and gradients
# go 16 bytes at a time; the lock-free updates, that of a push and that of a product
# (GemmKernel<tile, true>), add four floats with one instruction from 9.0 on. A
# block of values is claimed and released between fences, and what is read behind the claim comes from
# no older line of the first cache. Scope 0 is that of one GPU, scope 1 of the system, for workers on
# several: then no atomic operation is at a smaller one.
GPU, SYSTEM = "ScopeE0E", "ScopeE1E"


def ptx_claim(fence, cas):
    return fence + r";\s+" + cas + r"[^;]*;(?:(?!bar\.|ld\.)[^;]*;)*?\s*" + fence


def sass_claim(scope):
    gap = r"(?:(?!LDG|STG|BAR\.)[\s\S])*"
    return gap.join([rf"MEMBAR\.\w+\.{scope}", rf"ATOMG?\.E\.CAS\.64\.STRONG\.{scope}",
                     rf"MEMBAR\.\w+\.{scope}", r"CCTL\.IVALL"])


PTX_PROMISES = {
    "GemmKernel": [r"ld\.global(\.\w+)*\.v4\.f32"],
    "GemmKernel.*Lb1E": [r"(red|atom)\.global(\.(?!sys)\w+)*\.add\.v4\.f32"],
    "GatherKernel": [r"st\.global(\.\w+)*\.v4\.f32"],
    "NonFiniteKernel": [r"ld\.global(\.\w+)*\.v4\.f32"],
    "AtomicSgdKernel": [r"ld\.global(\.\w+)*\.v4\.f32"],
    f"AtomicSgdKernel.*{GPU}": [r"(red|atom)\.global(\.(?!sys)\w+)*\.add\.v4\.f32"],
    f"AtomicSgdKernel.*{SYSTEM}": [r"(red|atom)(\.\w+)*\.sys(\.\w+)*\.add\.v4\.f32"],
    "FetchKernel": [r"ld\.relaxed\.sys\.global\.v4\.u32"],
    "ReportKernel": [r"st\.release\.sys\.global\.u64"],
    "ClaimedUpdate": [r"ld\.global(\.\w+)*\.v4\.f32", r"st\.global(\.\w+)*\.v4\.f32"],
    f"ClaimedUpdate.*{GPU}": [ptx_claim(r"(?:membar\.gl|fence\.\w+\.gpu)",
                                        r"atom(\.(?!sys)\w+)*\.cas\.b64")],
    f"ClaimedUpdate.*{SYSTEM}": [ptx_claim(r"(?:membar\.sys|fence\.\w+\.sys)",
                                           r"atom(\.\w+)*\.sys(\.\w+)*\.cas\.b64")],
}
SASS_PROMISES = {
    "GemmKernel": [r"LDG\.E\.128", r"LDS\.128"],
    "GemmKernel.*Lb1E": [r"REDG?\.E\.ADD\.F32x4\S*\.STRONG\.GPU"],
    "GatherKernel": [r"STG\.E\.128"],
    "NonFiniteKernel": [r"LDG\.E\.128"],
    "AtomicSgdKernel": [r"LDG\.E\.128"],
    f"AtomicSgdKernel.*{GPU}": [r"REDG?\.E\.ADD\.F32x4\S*\.STRONG\.GPU"],
    f"AtomicSgdKernel.*{SYSTEM}": [r"REDG?\.E\.ADD\.F32x4\S*\.STRONG\.SYS"],
    "FetchKernel": [r"LDG\.E\.128\.STRONG\.SYS"],
    "ReportKernel": [r"ST(G)?\.E\.64\.STRONG\.SYS"],
    "ClaimedUpdate": [r"LDG\.E\.128", r"STG\.E\.128"],
    f"ClaimedUpdate.*{GPU}": [sass_claim("GPU")],
    f"ClaimedUpdate.*{SYSTEM}": [sass_claim("SYS")],
}
# What must not be there, in all kernels (""): loads that other writers' stores never reach, for
# values that other processes write meanwhile.
PTX_FORBIDDEN = {
    "": [r"ld\.global(\.\w+)*\.nc"],
    SYSTEM: [r"\b(atom|red)\.(?!\S*\bsys\b)\S+", r"membar\.gl|fence\.\w+\.gpu"],
    "FetchKernel": [r"\bld\.global"],
}
SASS_FORBIDDEN = {
    "": [r"LDG\.\S*CONSTANT"],
    SYSTEM: [r"\b(ATOM|RED)G?\.(?!\S*STRONG\.SYS)\S+", r"MEMBAR\.\w+\.GPU"],
    "FetchKernel": [r"LDG\.(?!\S*STRONG\.SYS)\S+"],
}


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=SECONDS, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout}\nfailed with {result.returncode}")
    return result.stdout


def kernel_name(mangled):
    """_ZN6passel...9RunKernelINS0_12ReportKernelEEEvT_ -> 12ReportKernelE."""
    found = re.search(r"RunKernelI(?:NS\w*?_)?(.*)EvT_$", mangled)
    return found.group(1) if found else mangled


# --- Resources ----------------------------------------------------------------------------------

PTXAS = re.compile(
    r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads\s+ptxas info\s*: Used (\d+) registers([^\n]*)")


def resource_errors(text, archs):
    """(errors, kernels of each architecture) of what ptxas -v said when the plugin was compiled."""
    errors, counts = [], {arch: 0 for arch in archs}
    pieces = re.split(r"Compiling entry function '\S+' for 'sm_(\d+)\w*'", text)
    for arch, piece in zip(pieces[1::2], pieces[2::2]):
        for name, stack, stores, loads, registers, rest in PTXAS.findall(piece):
            counts[arch] = counts.get(arch, 0) + 1
            where = f"{kernel_name(name)} for sm_{arch}"
            shared = re.search(r"(\d+) bytes smem", rest)
            if int(stores) or int(loads):
                errors.append(f"{where} spills: {stores} bytes stored, {loads} loaded (stack {stack})")
            if int(registers) > MAX_REGISTERS:
                errors.append(f"{where} uses {registers} registers, at most {MAX_REGISTERS} are wanted")
            if shared and int(shared.group(1)) > MAX_SHARED:
                errors.append(f"{where} uses {shared.group(1)} bytes of shared memory, {MAX_SHARED} "
                              "are the limit")
    errors += [f"ptxas said nothing about any kernel for sm_{arch}"
               for arch, count in counts.items() if count == 0]
    if len(set(counts.values())) > 1:
        errors.append(f"not as many kernels for each architecture: {counts}")
    return errors, counts


def real_archs(archs):
    return [arch.split("-")[0] for arch in archs if not arch.endswith("-virtual")]


def check_resources(options):
    with open(options.ptxas, encoding="utf-8") as file:
        errors, counts = resource_errors(file.read(), real_archs(options.archs))
    return errors, f"{counts} kernels"


# --- Architectures ------------------------------------------------------------------------------

def fatbin_archs(data):
    """{"90", "120-virtual", ...} of the fat binaries in these bytes.

    A fat binary is a header {magic, version, header size, size of the rest}, then entries {kind,
    version, header size, size, ..., architecture at byte 28}; kind 1 is PTX, 2 is machine code.
    """
    archs, at = set(), 0
    while True:
        at = data.find(b"\x50\xed\x55\xba", at)
        if at < 0:
            return archs
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, at + header + size
        if header != 16 or end > len(data):
            at += 4
            continue
        while entry + 64 <= end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
            if kind not in (1, 2) or entry_header < 32:
                break
            (arch,) = struct.unpack_from("<I", data, entry + 28)
            archs.add(f"{arch}-virtual" if kind == 1 else str(arch))
            entry += entry_header + payload
        at = end


def wanted_archs(archs):
    return {arch.removesuffix("-real") for arch in archs}


def arch_errors(found, wanted):
    errors = [f"there is no code for {arch}" for arch in sorted(wanted - found)]
    return errors + [f"there is code for {arch}, which nobody asked for"
                     for arch in sorted(found - wanted)]


# Those that NVIDIA makes, and one to come.
CAPABILITIES = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121, 130)


def runs_on(arch, capability):
    """Machine code runs on its own major version from its minor version on, PTX on all that is newer."""
    number = int(arch.split("-")[0])
    return number <= capability and (
        arch.endswith("-virtual") or number // 10 == capability // 10)


def gap_errors(archs):
    return [f"a GPU of compute capability {c // 10}.{c % 10} finds no code" for c in CAPABILITIES
            if not any(runs_on(arch, c) for arch in archs)]


def check_archs(options):
    with open(options.plugin, "rb") as file:
        found = fatbin_archs(file.read())
    errors = arch_errors(found, wanted_archs(options.archs))
    if "75" in found:
        errors += gap_errors(found)
    return errors, ", ".join(sorted(found))


# --- Links and symbols --------------------------------------------------------------------------

CUDA_LIBRARY = re.compile(r"\[(lib(?:cuda|cublas|cudart|nvidia|nvrtc|nvJitLink|nccl)[^\]]*)\]")


def link_errors(name, text):
    errors = [f"{name} needs {library}" for library in CUDA_LIBRARY.findall(text)]
    if "(NEEDED)" not in text:
        errors.append(f"readelf shows nothing that {name} needs")
    return errors + [f"{name} has a run path: {line.strip()}" for line in text.splitlines()
                     if re.search(r"\((RPATH|RUNPATH)\)", line)]


def check_links(options):
    plugin = run(["readelf", "-d", options.plugin])
    program = re.sub(r"[^\n]*\((RPATH|RUNPATH)\)[^\n]*", "", run(["readelf", "-d", options.program]))
    return link_errors("the plugin", plugin) + link_errors("the program", program), "no CUDA library"


def symbol_errors(text):
    symbols = sorted(line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip())
    return [] if symbols == [ENTRY] else [f"the plugin shows {symbols}, not {ENTRY} alone"]


def check_symbols(options):
    return symbol_errors(run(["nm", "-D", "--defined-only", options.plugin])), ENTRY


# --- Promises -----------------------------------------------------------------------------------

def promise_errors(text, begin, promises, forbidden):
    """`begin`: matches where the code of a function begins, its name in group 1."""
    starts = list(begin.finditer(text))
    errors, kept = [], {key: 0 for key in promises}
    for i, start in enumerate(starts):
        code = text[start.end():starts[i + 1].start() if i + 1 < len(starts) else len(text)]
        name = kernel_name(start.group(1))
        errors += [f"{name}: {pattern} in its code" for key, patterns in forbidden.items()
                   for pattern in patterns if re.search(key, name) and re.search(pattern, code)]
        for key, patterns in promises.items():
            if not re.search(key, name):
                continue
            kept[key] += 1
            errors += [f"{name}: no {pattern} in its code" for pattern in patterns
                       if not re.search(pattern, code)]
    return errors + [f"no kernel is called {key}" for key, count in kept.items() if count == 0]


PTX_FUNCTION = re.compile(r"\.entry (\S+?)\(")
SASS_FUNCTION = re.compile(r"Function : (\S+)")


def check_ptx(options):
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "kernels.ptx")
        run([options.nvcc, *options.flags, "-arch=compute_90", "-ptx", options.source, "-o", path])
        with open(path, encoding="utf-8") as file:
            text = "".join(line for line in file if not re.match(r"\s*(\.loc|//)", line))
    return promise_errors(text, PTX_FUNCTION, PTX_PROMISES, PTX_FORBIDDEN), "every promise is kept"


def check_sass(options):
    tool = os.environ.get("PASSEL_CUOBJDUMP") or shutil.which("cuobjdump") or os.path.join(
        os.path.dirname(options.nvcc), "cuobjdump")
    if not os.path.isfile(tool) or not (shutil.which("nvdisasm") or os.path.isfile(
            os.path.join(os.path.dirname(tool), "nvdisasm"))):
        skip("cuobjdump and nvdisasm are not installed (PATH, $PASSEL_CUOBJDUMP): the machine code "
             "was not read, PTX was")
    if "90" not in real_archs(options.archs):
        skip("the plugin was not built for sm_90")
    text = run([tool, "--dump-sass", "-arch", "sm_90", options.plugin])
    return promise_errors(text, SASS_FUNCTION, SASS_PROMISES, SASS_FORBIDDEN), "every promise is kept"


# --- Self-test ----------------------------------------------------------------------------------

def check_self(_options):
    errors = []

    def expect(what, condition):
        if not condition:
            errors.append(f"self-test: {what}")

    def ptxas(stores=0, registers=40, shared=64):
        return ("ptxas info    : Compiling entry function '_ZN1a' for 'sm_90'\n"
                "ptxas info    : Function properties for _ZN1a9RunKernelINS0_12ReportKernelEEEvT_\n"
                f"    0 bytes stack frame, {stores} bytes spill stores, {stores} bytes spill loads\n"
                f"ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem\n")

    expect("a good kernel is refused", resource_errors(ptxas(), ["90"]) == ([], {"90": 1}))
    expect("a spill is missed", "spills" in resource_errors(ptxas(stores=8), ["90"])[0][0])
    expect("registers are missed", "129" in resource_errors(ptxas(registers=129), ["90"])[0][0])
    expect("shared memory is missed", resource_errors(ptxas(shared=49153), ["90"])[0])
    expect("silence is missed", resource_errors("", ["90"])[0])
    expect("another architecture is missed", resource_errors(ptxas(), ["80", "90"])[0])
    expect("a missing kernel is missed",
           resource_errors(ptxas() + ptxas() + ptxas().replace("sm_90", "sm_80"), ["80", "90"])[0])

    def entry(kind, arch):
        return struct.pack("<HHIQ", kind, 257, 64, 8) + bytes(12) + struct.pack("<I", arch) + bytes(
            32 + 8)
    body = entry(2, 90) + entry(1, 120)
    data = b"x" * 7 + b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(body)) + body
    found = fatbin_archs(data)
    expect(f"architectures are misread: {found}", found == {"90", "120-virtual"})
    expect("a missing architecture is missed", arch_errors(found, {"90", "80", "120-virtual"}))
    expect("an architecture too many is missed", arch_errors(found, {"90"}))
    expect("-real is misread", wanted_archs(["90-real", "120-virtual"]) == found)

    every = {"75", "80", "86", "89", "90", "100", "120", "120-virtual"}
    expect("a GPU without code is missed", gap_errors(every) == [
        "a GPU of compute capability 11.0 finds no code"])
    expect("a GPU with PTX is refused", not gap_errors({*every, "90-virtual"}))
    expect("a GPU to come is missed", "13.0" in "".join(gap_errors(every - {"120-virtual"})))
    expect("an older GPU is missed", gap_errors({"80", "80-virtual"}))
    expect("code of a newer GPU is counted", not runs_on("89", 86) and not runs_on("89", 90))

    needed = " 0x1 (NEEDED) Shared library: [{}]\n"
    expect("libc is refused", not link_errors("it", needed.format("libc.so.6")))
    for library in ("libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"):
        expect(f"{library} is missed", link_errors("it", needed.format(library)))
    expect("a run path is missed",
           link_errors("it", needed.format("libc.so.6") + " 0x1d (RUNPATH) [/usr/local/cuda]\n"))
    expect("one symbol is refused", not symbol_errors(f"0001 T {ENTRY}\n"))
    expect("a second symbol is missed", symbol_errors(f"0001 T {ENTRY}\n0002 T cudaMalloc\n"))

    sass = "Function : _ZN1a9RunKernelINS0_12ReportKernelEEEvT_\n ST.E.64.STRONG.SYS\n"
    promises = {"ReportKernel": SASS_PROMISES["ReportKernel"]}
    def errors_of(text, promises=promises):
        return promise_errors(text, SASS_FUNCTION, promises, SASS_FORBIDDEN)
    expect("a kept promise is refused", not errors_of(sass))
    expect("a broken promise is missed", errors_of(sass.replace("STRONG", "WEAK")))
    expect("a missing kernel is missed", errors_of(""))
    expect("a forbidden load is missed", errors_of(sass + " LDG.E.128.CONSTANT R4, [R2]\n"))

    claim = ["MEMBAR.SC.GPU ;", "ATOMG.E.CAS.64.STRONG.GPU PT ;", "MEMBAR.SC.GPU ;", "CCTL.IVALL ;",
             "BAR.SYNC ;", "LDG.E.128 ;", "STG.E.128 ;"]

    def claim_errors(lines, scope):
        key = f"ClaimedUpdate.*{scope}"
        name = f"_ZN1a9RunKernelINS0_13ClaimedUpdateINS_7SgdRuleELNS0_5{scope}EEEEvT_"
        return errors_of(f"Function : {name}\n" + "\n".join(lines),
                         {"ClaimedUpdate": SASS_PROMISES["ClaimedUpdate"], key: SASS_PROMISES[key]})
    for scope, lines in ((GPU, claim), (SYSTEM, [line.replace(".GPU", ".SYS") for line in claim])):
        expect(f"a claim between fences is refused for {scope}", not claim_errors(lines, scope))
        for i in range(4):
            expect(f"a claim without {lines[i]} is missed",
                   claim_errors(lines[:i] + lines[i + 1:], scope))
        expect("a load before the fence is missed",
               claim_errors([lines[0], lines[1], lines[5], *lines[2:5], lines[6]], scope))
    expect("a claim that stays on its GPU is missed", claim_errors(claim, SYSTEM))
    both = [line.replace(".GPU", ".SYS") for line in claim]
    for line in ("ATOMG.E.CAS.64.STRONG.GPU PT ;", "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU ;",
                 "MEMBAR.SC.GPU ;"):
        expect(f"{line} among others is missed", claim_errors([*both, line], SYSTEM))
    ptx = re.compile(PTX_FORBIDDEN[SYSTEM][0])
    for line in ("atom.global.sys.cas.b64 %r;", "red.relaxed.sys.global.add.f32 [%r];"):
        expect(f"{line} is refused", not ptx.search(line))
    for line in ("atom.global.cas.b64 %r;", "red.relaxed.gpu.global.add.v4.f32 [%r];"):
        expect(f"{line} is missed", ptx.search(line))
    return errors, "the checks find what they are to find"


def skip(reason):
    print(f"check_build: skipped: {reason}")
    sys.exit(77)


CHECKS = {"resources": check_resources, "archs": check_archs, "links": check_links,
          "symbols": check_symbols, "ptx": check_ptx, "sass": check_sass, "self-test": check_self}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("check", choices=[*CHECKS, "skip"])
    parser.add_argument("--why", default="")
    parser.add_argument("--nvcc")
    parser.add_argument("--ptxas", help="what ptxas -v said of the plugin")
    parser.add_argument("--source", help="the file with all kernels")
    parser.add_argument("--flags", default="", help="of nvcc")
    parser.add_argument("--archs", default="", help="80 90 120-virtual")
    parser.add_argument("--plugin")
    parser.add_argument("--program")
    options = parser.parse_args()
    options.flags = shlex.split(options.flags)
    options.archs = options.archs.split()
    if options.check == "skip":
        skip(options.why)
    errors, summary = CHECKS[options.check](options)
    for error in errors:
        print(f"check_build: {error}")
    if not errors:
        print(f"check_build: {options.check}: {summary}")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
