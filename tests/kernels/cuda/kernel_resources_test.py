"""No kernel spills or has a stack, and kernels/README.md has their table."""

import pathlib
import unittest

from tests.kernels.cuda import kernel_resources as resources

FOLDER = "kernels/cuda/kernels_objects"
README = "kernels/README.md"

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


class ReadingTest(unittest.TestCase):

    def test_reads_what_ptxas_says(self):
        first, kernels = resources.read_log(LOG)
        self.assertEqual(first, "CUDA 13.0 in /usr/local/cuda")
        self.assertEqual(kernels[0][1:],
                         ("sm_90", 128, 40, 4096, 36, 24, None))
        names = resources.short_names([kernels[0].name])
        self.assertEqual(list(names.values()), ["Sum<F32>"])

    def test_loads_count_up_to_the_first_use(self):
        self.assertEqual(resources.bytes_in_flight(LOADS), 16 + 8)

    def test_copies_count_by_the_groups_under_way(self):
        self.assertEqual(resources.bytes_in_flight(COPIES), 4 * 32)

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
            print("no cuobjdump: what is in flight is not compared")
            there, table = ([line.rpartition(" | ")[0] for line in lines]
                            for lines in (there, table))
        self.assertEqual(
            there, table, "after a change of the kernels: bazel run "
            "//tests/kernels/cuda:kernel_resources -- --write")


if __name__ == "__main__":
    unittest.main()
