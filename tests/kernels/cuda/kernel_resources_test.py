"""No kernel spills or has a stack, and kernels/cuda/README.md has their table."""

import pathlib
import unittest

from tests.kernels.cuda import kernel_resources as resources

FOLDER = "kernels/cuda/kernels_objects"
README = "kernels/cuda/README.md"

LOG = """CUDA 13.0 in /usr/local/cuda
.entry _ZN3agg3SumINS_3F32EEEvPd(
.maxntid 64, 2, 1
ptxas info : Compiling entry function '_ZN3agg3SumINS_3F32EEEvPd' for 'sm_90'
ptxas info : Function properties for _ZN3agg3SumINS_3F32EEEvPd
    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info : Used 40 registers, used 1 barriers, 4096 bytes smem
"""

LOADS = """
/*0000*/ LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
/*0010*/ @!P1 LDG.E.64 R8, desc[UR4][R2.64+0x10] ;
/*0020*/ FADD R0, R9, R7 ;
/*0030*/ LDG.E R12, desc[UR4][R2.64+0x20] ;
/*0040*/ @P0 BRA 0x30 ;
/*0050*/ EXIT ;
"""

COPIES = """
/*0000*/ LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64] ;
/*0010*/ LDGSTS.E.BYPASS.128 [R3+0x10], desc[UR4][R8.64] ;
/*0020*/ LDGDEPBAR ;
/*0030*/ LDGSTS.E.BYPASS.128.ZFILL [R3], desc[UR4][R6.64], P1 ;
/*0040*/ LDGDEPBAR ;
/*0050*/ DEPBAR.LE SB0, 0x3 ;
/*0060*/ @P0 BRA 0x0 ;
"""

# Two loops; the second one waits, has a longer branch for the rows' end, a copy
# of a few lanes that others leave out, and something that may be left out.
LOOPS = """
/*0000*/ LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64] ;
/*0010*/ LDGDEPBAR ;
/*0020*/ @P0 BRA 0x0 ;
/*0030*/ DEPBAR.LE SB0, 0x2 ;
/*0040*/ BSSY B0, 0xc0 ;
/*0050*/ @!P0 BRA 0x90 ;
/*0060*/ LDGSTS.E.BYPASS.128.ZFILL [R3], desc[UR4][R6.64], P1 ;
/*0070*/ LDGSTS.E.BYPASS.128.ZFILL [R3+0x200], desc[UR4][R8.64], P1 ;
/*0080*/ BRA 0xb0 ;
/*0090*/ LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64] ;
/*00a0*/ LDGSTS.E.BYPASS.128 [R3+0x200], desc[UR4][R8.64] ;
/*00b0*/ BSYNC B0 ;
/*00c0*/ LDGDEPBAR ;
/*00d0*/ @P3 BRA 0xf0 ;
/*00e0*/ LDGSTS.E [R5], desc[UR4][R10.64] ;
/*00f0*/ @P4 BRA 0x110 ;
/*0100*/ NOP ;
/*0110*/ @!PT LDS RZ, [RZ] ;
/*0120*/ @P2 BRA 0x30 ;
/*0130*/ EXIT ;
"""


class ReadingTest(unittest.TestCase):

    def test_reads_what_ptxas_says(self):
        first, kernels = resources.read_log(LOG)
        self.assertEqual(first, "CUDA 13.0 in /usr/local/cuda")
        self.assertEqual(kernels[0][1:],
                         ("sm_90", 128, 40, 4096, 36, 24, None, None))
        names = resources.short_names([kernels[0].name])
        self.assertEqual(list(names.values()), ["Sum<F32>"])

    def test_loads_count_up_to_the_first_use(self):
        loads = resources.instructions_of(LOADS)
        self.assertEqual(resources.bytes_in_flight(loads), 16 + 8)

    def test_copies_count_by_the_groups_under_way(self):
        copies = resources.instructions_of(COPIES)
        self.assertEqual(resources.bytes_in_flight(copies), 4 * 32)

    def test_instructions_are_those_of_a_whole_iteration(self):
        loops = resources.instructions_of(LOOPS)
        # 1 KB: 2 copies of 32 lanes.
        self.assertEqual(resources.instructions_per_kb(loops), 3 + 9)
        # One group of two with zeros at its end, and one without.
        copies = resources.instructions_of(COPIES)
        self.assertEqual(resources.instructions_per_kb(copies), 7)
        loads = resources.instructions_of(LOADS)
        self.assertIsNone(resources.instructions_per_kb(loads))

    def test_blocks_are_bound_by_what_runs_out_first(self):
        blocks = resources.blocks_per_sm
        self.assertEqual(blocks("sm_90", 256, 64, 37120), 4)  # registers
        self.assertEqual(blocks("sm_90", 256, 65, 0), 3)
        self.assertEqual(blocks("sm_90", 256, 80, 0), 3)
        self.assertEqual(blocks("sm_90", 256, 255, 0), 1)
        self.assertEqual(blocks("sm_120", 256, 64, 37120), 2)  # shared memory
        self.assertEqual(blocks("sm_120", 256, 16, 0), 6)  # threads
        self.assertEqual(blocks("sm_120", 32, 16, 0), 24)  # blocks


class KernelsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.release, cls.kernels, cls.has_code = resources.read_all(FOLDER)

    def test_all_are_there_for_all_architectures(self):
        archs = {kernel.arch for kernel in self.kernels}
        names = {kernel.name for kernel in self.kernels}
        self.assertIn("UpdateKernel<Bf16>", names)
        self.assertEqual(len(self.kernels), len(archs) * len(names))

    def test_none_spills_or_has_a_stack(self):
        bad = [kernel for kernel in self.kernels
               if kernel.spills or kernel.stack]
        self.assertEqual(bad, [])

    # Update is to be bound by memory: an SM of an H200 issues some 220
    # instructions while a KB comes at the bandwidth of its memory
    # (kernels/cuda/README.md), and those of the optimizer's step and the stores
    # come on top.
    def test_update_needs_few_instructions(self):
        if not self.has_code:
            self.skipTest("no cuobjdump: instructions are not counted")
        if not any(kernel.arch == "sm_90" for kernel in self.kernels):
            self.skipTest("not built for sm_90")
        of = {kernel.name: kernel.instructions_per_kb
              for kernel in self.kernels if kernel.arch == "sm_90"}
        self.assertLessEqual(of["UpdateKernel<F32>"], 48)
        self.assertLessEqual(of["UpdateKernel<Bf16>"], 96)

    def test_readme_has_their_table(self):
        text = pathlib.Path(README).read_text()
        there = text.partition(resources.BEGIN)[2].partition(resources.END)[0]
        there = there.strip().splitlines()
        self.assertTrue(there, "the table is not there")
        table = resources.table(self.release, self.kernels)
        if there[0] != table[0]:
            self.skipTest(f"the table is for {there[0]!r}, this build for "
                          f"{table[0]!r}")
        if not self.has_code:  # as where the toolkit is only the compiler
            print("no cuobjdump: what machine code shows is not compared")
            there, table = ([line.rsplit(" | ", 2)[0] for line in lines]
                            for lines in (there, table))
        self.assertEqual(
            there, table, "after a change of the kernels: bazel run "
            "//tests/kernels/cuda:kernel_resources -- --write")


if __name__ == "__main__":
    unittest.main()
