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

Instructions per KB say what a warp issues while its copies bring a KB: in an
iteration of the loop that copies ahead, as long as everything lies within the
rows. The loop is an innermost one that starts copies of 16 bytes and waits for
groups; of several the first in the code: that of the rows before that of the
state, an unrolled one before its rest. The iteration is the shortest path from
the loop's begin to a branch back to it, by forward branches, of those with the
most copies that do not fill up with zeros. Its instructions are divided by what
its 16-byte copies bring for 32 lanes. What is predicated off counts, for it is
issued, and so do the NOPs that sm_120 has between instructions on doubles.
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

# One kernel on one architecture; the last two are None where no machine code
# was looked at, instructions_per_kb also where no loop copies ahead.
Kernel = collections.namedtuple(
    "Kernel",
    "name arch threads registers shared spills stack bytes_per_thread "
    "instructions_per_kb")


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
                                  stack, None, None))
    return text.splitlines()[0], kernels


# --- Machine code -------------------------------------------------------------

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?"
                          r"([A-Z]\S*)\s*(.*?);")
_ENDS_BLOCK = re.compile(r"BRA|BRX|EXIT|RET|CALL|BSYNC|BREAK|JMP|WARPSYNC")

Instruction = collections.namedtuple(
    "Instruction", "at is_predicated operation operands")


def instructions_of(code):
    """Those of a function's disassembly."""
    return [Instruction(int(at, 16), bool(predicate), operation,
                        operands.strip())
            for at, predicate, operation, operands
            in _INSTRUCTION.findall(code)]


def targets_of(instruction):
    """Addresses that it may branch to."""
    return [int(target, 16)
            for target in re.findall(r"0x[0-9a-f]+", instruction.operands)
            if _ENDS_BLOCK.match(instruction.operation)]


def leaves_for_good(instruction):
    """Whether no thread goes on to the instruction that follows."""
    is_branch = (instruction.operation == "BRA" and
                 instruction.operands.startswith("0x"))
    return (is_branch or instruction.operation == "EXIT") and \
        not instruction.is_predicated


def basic_blocks(instructions):
    """Lists of (operation, operands)."""
    targets = {target for each in instructions for target in targets_of(each)}
    blocks = [[]]
    for each in instructions:
        if each.at in targets:
            blocks.append([])
        blocks[-1].append((each.operation, each.operands))
        if _ENDS_BLOCK.match(each.operation):
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


def bytes_in_flight(instructions):
    """Of one thread that runs a function of these instructions."""
    blocks = basic_blocks(instructions)
    return max([copies_in_flight(blocks)] +
               [loads_before_use(block) for block in blocks])


def copied_bytes(instruction):
    """Of a thread, where it is a copy that does not fill up with zeros."""
    if (instruction.operation.startswith("LDGSTS") and
            "ZFILL" not in instruction.operation):
        return load_bytes(instruction.operation)
    return 0


def is_wide_copy(instruction):
    """16 bytes, as pieces of rows are; scales are 4, of a few lanes."""
    return copied_bytes(instruction) == 16


def copying_loops(instructions):
    """The innermost loops that start copies and wait, in the code's order:
    their instructions."""
    ends = {}  # of the loop that begins there
    for each in instructions:
        for target in targets_of(each):
            if target <= each.at and each.operation.startswith("BRA"):
                ends[target] = each.at
    loops = [[each for each in instructions if begin <= each.at <= end]
             for begin, end in sorted(ends.items())]
    loops = [loop for loop in loops if any(map(is_wide_copy, loop)) and
             any(each.operation == "DEPBAR.LE" for each in loop)]

    def holds(outer, inner):
        return (outer is not inner and outer[0].at <= inner[0].at and
                inner[-1].at <= outer[-1].at)

    return [loop for loop in loops
            if not any(holds(loop, other) for other in loops)]


def whole_iteration(loop):
    """(instructions, wide copies) of an iteration of a loop: the fewest with
    the most copies."""
    begin = loop[0].at
    best = {}  # from an address on: (copies, -instructions, wide copies)
    following = None
    for each in reversed(loop):
        targets = targets_of(each)
        ways = [best[target] for target in targets if target in best]
        if begin in targets:
            ways.append((0, 0, 0))
        if not leaves_for_good(each) and following in best:
            ways.append(best[following])
        if ways:
            copies, negative_count, wide = max(ways)
            best[each.at] = (copies + (copied_bytes(each) > 0),
                             negative_count - 1, wide + is_wide_copy(each))
        following = each.at
    _, negative_count, wide = best[begin]
    return -negative_count, wide


def instructions_per_kb(instructions):
    """Of the loop that copies ahead, or None."""
    loops = copying_loops(instructions)
    if not loops:
        return None
    count, wide_copies = whole_iteration(loops[0])
    return count / (wide_copies * 16 * 32 / 1024) if wide_copies else None


def disassemble(cuobjdump, path):
    """{(mangled name, architecture): its instructions}."""
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
    return {key: instructions_of("\n".join(code))
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
    kernels, codes, release = [], {}, ""
    for log in sorted(pathlib.Path(folder).glob("*.ptxas")):
        first, of_log = read_log(log.read_text())
        release, home = re.match(r"CUDA (\S+) in (.*)", first).groups()
        kernels += of_log
        cuobjdump = find_cuobjdump(home)
        if cuobjdump:
            codes.update(disassemble(
                cuobjdump, str(log)[:-len(".ptxas")] + ".pic.o"))
    names = short_names(sorted({kernel.name for kernel in kernels}))
    for i, kernel in enumerate(kernels):
        code = codes.get((kernel.name, kernel.arch))
        if code:
            kernel = kernel._replace(
                bytes_per_thread=bytes_in_flight(code),
                instructions_per_kb=instructions_per_kb(code))
        kernels[i] = kernel._replace(name=names[kernel.name])
    return release, sorted(kernels, key=lambda k: k.name), bool(codes)


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
    per_kb = ["-" if k.instructions_per_kb is None else
              f"{k.instructions_per_kb:.0f}" for k in of_archs]
    return [f"`{of_archs[0].name}`", joined(k.threads for k in of_archs),
            joined(k.registers for k in of_archs),
            joined(f"{k.shared / 1024:.1f}" for k in of_archs),
            joined(k.spills + k.stack for k in of_archs), joined(blocks),
            joined(in_flight), joined(per_kb)]


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
             "bytes | blocks per SM | in flight per SM, KB | "
             "instructions per KB |",
             "|---|---|---|---|---|---|---|---|"]
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
              "would lack what it shows", file=sys.stderr)
        return 1
    readme = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"],
                          "kernels/cuda/README.md")
    before, _, rest = readme.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
