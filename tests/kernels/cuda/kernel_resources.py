#!/usr/bin/python3 -B
"""What the kernels take of a multiprocessor (SM), as a Markdown table.

    bazel run //tests/kernels/cuda:kernel_resources               # prints it
    bazel run //tests/kernels/cuda:kernel_resources -- --write    # to README.md

Registers, shared memory, spills and stack are what ptxas says (-v), threads
what the PTX does. Blocks per SM follow from the limits of the architecture
(CUDA C++ Programming Guide, "Compute Capabilities"). Bytes in flight per SM
are read off the machine code, for which cuobjdump is needed: of a thread, the
larger one of

- the loads of global or generic memory that a basic block issues before it uses
  any of them, and
- for asynchronous copies the bytes of a group times the groups that are under
  way at most while a thread waits: those that the wait leaves, and the one that
  it waits for. Copies that fill up with zeros, at the end of rows, are left
  out.

times the threads that an SM holds. It is what can be under way, not what a run
would show; a kernel that loads in several blocks has more.
"""

import collections
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

BEGIN = "<!-- bazel run //tests/kernels/cuda:kernel_resources -- --write -->"
END = "<!-- end of kernel_resources -->"

# Limits of an SM. Registers: 64 Ki in four parts, 256 per warp at a time.
Limits = collections.namedtuple("Limits", "warps blocks shared_bytes")
LIMITS = {
    "sm_80": Limits(64, 32, 164 << 10),
    "sm_90": Limits(64, 32, 228 << 10),
    "sm_100": Limits(64, 32, 228 << 10),
    "sm_120": Limits(48, 24, 100 << 10),
}
_PARTS = 4
_PART_REGISTERS = 16384
_BLOCK_SHARED = 1024  # that the system takes of each block

# One kernel on one architecture; `bytes_per_thread` is None where no machine
# code was looked at.
Kernel = collections.namedtuple(
    "Kernel",
    "name arch threads registers shared spills stack bytes_per_thread")


def blocks_per_sm(arch, threads, registers, shared):
    """How many blocks an SM holds at a time."""
    limits = LIMITS[arch]
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    shared = -(-(shared + _BLOCK_SHARED) // 128) * 128
    return min(limits.blocks, limits.warps // warps,
               _PART_REGISTERS // per_warp * _PARTS // warps,
               limits.shared_bytes // shared)


def short_names(mangled):
    """Mangled names to names without namespaces and parameters."""
    if not mangled:
        return {}
    output = subprocess.run(["c++filt"], input="\n".join(mangled), check=True,
                            text=True, stdout=subprocess.PIPE).stdout
    names = [re.sub(r"\((?!anonymous).*", "", line.replace("void ", ""))
             for line in output.splitlines()]
    names = [re.sub(r"[\w()]+( namespace\))?::", "", name) for name in names]
    return dict(zip(mangled, names))


def read_log(text):
    """A log of deploy/bazel/cuda.bzl: its first line, and its kernels."""
    threads, kernels = {}, []
    name = arch = stack = spills = None
    for line in text.splitlines():
        entry = re.match(r"\.(?:visible \.)?entry (\w+)", line)
        compiled = re.search(r"entry function '(\w+)' for '(\w+)'", line)
        used = re.search(r"Used (\d+) registers", line)
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                          r"(\d+) bytes spill loads", line)
        if entry:
            name = entry[1]
        elif line.startswith(".maxntid"):
            threads[name] = math.prod(map(int, re.findall(r"\d+", line)))
        elif compiled:
            name, arch = compiled.groups()
        elif frame:
            stack, spills = int(frame[1]), int(frame[2]) + int(frame[3])
        elif used:
            shared = re.search(r"(\d+) bytes smem", line)
            kernels.append(Kernel(name, arch, threads[name], int(used[1]),
                                  int(shared[1]) if shared else 0, spills,
                                  stack, None))
    return text.splitlines()[0], kernels


# --- Machine code -------------------------------------------------------------

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?"
                          r"([A-Z]\S*)\s*(.*?);")
_ENDS_BLOCK = re.compile(r"BRA|BRX|EXIT|RET|CALL|BSYNC|BREAK|JMP|WARPSYNC")


def basic_blocks(code):
    """Lists of (operation, operands) of a function's disassembly."""
    instructions = [(int(at, 16), operation, operands) for at, operation,
                    operands in _INSTRUCTION.findall(code)]
    targets = {int(target, 16) for _, operation, operands in instructions
               if _ENDS_BLOCK.match(operation)
               for target in re.findall(r"0x[0-9a-f]+", operands)}
    blocks = [[]]
    for at, operation, operands in instructions:
        if at in targets:
            blocks.append([])
        blocks[-1].append((operation, operands))
        if _ENDS_BLOCK.match(operation):
            blocks.append([])
    return [block for block in blocks if block]


def load_bytes(operation):
    """Of a load or a copy, by the suffix of its width."""
    width = re.search(r"\.(64|128|256|[US]8|[US]16)\b", operation)
    return int(width[1].lstrip("US")) // 8 if width else 4


def registers_of(text, count=1):
    """Names of the registers in operands; `count` from each one on."""
    return {int(number) + i for number in re.findall(r"\bR(\d+)\b", text)
            for i in range(count)}


def loads_before_use(block):
    """Bytes that the block's loads have under way at most."""
    most = 0
    waiting = {}  # first register of a load: (its registers, its bytes)
    for operation, operands in block:
        destination, _, sources = operands.partition(",")
        used = registers_of(operands) if waiting else set()
        if any(registers & used for registers, _ in waiting.values()):
            waiting = {}  # what is used first is what the thread waits for
        if re.match(r"LDG?\.", operation) and sources:
            size = load_bytes(operation)
            waiting[destination] = (
                registers_of(destination, max(1, size // 4)), size)
            most = max(most, sum(size for _, size in waiting.values()))
    return most


def copies_in_flight(blocks):
    """Bytes that asynchronous copies have under way at most during a wait."""
    group = left = 0
    for block in blocks:
        size = 0
        for operation, operands in block:
            if operation.startswith("LDGSTS") and "ZFILL" not in operation:
                size += load_bytes(operation)
            elif operation.startswith("LDGDEPBAR"):
                size = 0
            elif operation.startswith("DEPBAR.LE"):
                left = max(left, int(operands.split(",")[1], 16))
            group = max(group, size)
    return group * (left + 1)


def bytes_in_flight(code):
    """Of one thread that runs a function of this disassembly."""
    blocks = basic_blocks(code)
    return max([copies_in_flight(blocks)] +
               [loads_before_use(block) for block in blocks])


def disassemble(cuobjdump, path):
    """{(mangled name, architecture): bytes in flight of a thread}."""
    output = subprocess.run([cuobjdump, "-sass", path], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    arch, lines = "", {}
    for line in output.splitlines():
        if "code for sm_" in line:
            arch = line.split()[-1]
        elif "Function : " in line:
            code = lines[line.split()[-1], arch] = []
        elif ";" in line:
            code.append(line)
    return {key: bytes_in_flight("\n".join(code))
            for key, code in lines.items()}


def find_cuobjdump(home):
    """The disassembler's path, or None."""
    for path in [f"{home}/bin/cuobjdump", os.environ.get("CUOBJDUMP", "")]:
        if os.access(path, os.X_OK):
            return path
    return shutil.which("cuobjdump")


# --- All of it ----------------------------------------------------------------


def read_all(folder):
    """Returns the toolkit's release, all kernels by name, and whether their
    machine code was read."""
    kernels, in_flight, release = [], {}, ""
    for log in sorted(pathlib.Path(folder).glob("*.ptxas")):
        first, of_log = read_log(log.read_text())
        release, home = re.match(r"CUDA (\S+) in (.*)", first).groups()
        kernels += of_log
        cuobjdump = find_cuobjdump(home)
        if cuobjdump:
            in_flight.update(disassemble(
                cuobjdump, str(log)[:-len(".ptxas")] + ".pic.o"))
    names = short_names(sorted({kernel.name for kernel in kernels}))
    kernels = [kernel._replace(
        name=names[kernel.name],
        bytes_per_thread=in_flight.get((kernel.name, kernel.arch)))
        for kernel in kernels]
    return release, sorted(kernels, key=lambda k: k.name), bool(in_flight)


def row(of_archs):
    """Cells of a kernel; several architectures' values with slashes."""
    def joined(values):
        values = [str(value) for value in values]
        return values[0] if len(set(values)) == 1 else " / ".join(values)

    blocks = [blocks_per_sm(k.arch, k.threads, k.registers, k.shared)
              for k in of_archs]
    in_flight = ["-" if k.bytes_per_thread is None else
                 f"{b * k.threads * k.bytes_per_thread / 1024:.0f}"
                 for b, k in zip(blocks, of_archs)]
    return [f"`{of_archs[0].name}`", joined(k.threads for k in of_archs),
            joined(k.registers for k in of_archs),
            joined(f"{k.shared / 1024:.1f}" for k in of_archs),
            joined(k.spills + k.stack for k in of_archs), joined(blocks),
            joined(in_flight)]


def table(release, kernels):
    """The lines between BEGIN and END."""
    by_name = collections.defaultdict(list)
    for kernel in kernels:
        by_name[kernel.name].append(kernel)
    archs = sorted({kernel.arch for kernel in kernels},
                   key=lambda arch: int(arch[3:]))
    lines = [f"CUDA {release}, {' / '.join(archs)} (one value where all are "
             "equal):", "",
             "| kernel | threads | registers | shared, KB | spills and stack, "
             "bytes | blocks per SM | in flight per SM, KB |",
             "|---|---|---|---|---|---|---|"]
    for of_name in by_name.values():
        of_name.sort(key=lambda kernel: archs.index(kernel.arch))
        lines.append("| " + " | ".join(row(of_name)) + " |")
    return lines


def main(arguments):
    release, kernels, has_code = read_all("kernels/cuda/kernels_objects")
    text = "\n".join(table(release, kernels))
    if arguments != ["--write"]:
        print(text)
        return 0
    if not has_code:
        print("no cuobjdump in the toolkit, $CUOBJDUMP or PATH: the table "
              "would lack what is in flight", file=sys.stderr)
        return 1
    readme = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"],
                          "kernels/README.md")
    before, _, rest = readme.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
