// Handlers of instructions that work on each lane by itself, from a function of
// values: Unary<float, Negate> and the like. A function is a type whose
// operator() takes and returns values.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_ELEMENTWISE_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_ELEMENTWISE_H_

#include <cstdint>

#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

inline Opcode Plain(Handler handler, int num_sources) {
  Opcode opcode;
  opcode.handler = handler;
  opcode.num_sources = num_sources;
  return opcode;
}

template <class A, class Function>
void Unary(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const a = lanes->Source(instruction, 0);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach(
      [=](int lane) { to[lane] = BitsOf(Function()(ValueOf<A>(a[lane]))); });
}

template <class A, class B, class Function>
void Binary(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const a = lanes->Source(instruction, 0);
  const uint64_t* const b = lanes->Source(instruction, 1);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach([=](int lane) {
    to[lane] = BitsOf(Function()(ValueOf<A>(a[lane]), ValueOf<B>(b[lane])));
  });
}

template <class A, class B, class C, class Function>
void Ternary(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const a = lanes->Source(instruction, 0);
  const uint64_t* const b = lanes->Source(instruction, 1);
  const uint64_t* const c = lanes->Source(instruction, 2);
  uint64_t* const to = lanes->Result(instruction, 0);
  lanes->ForEach([=](int lane) {
    to[lane] = BitsOf(Function()(ValueOf<A>(a[lane]), ValueOf<B>(b[lane]),
                                 ValueOf<C>(c[lane])));
  });
}

template <class A, class Function>
Opcode UnaryOf() {
  return Plain(&Unary<A, Function>, 1);
}
template <class A, class B, class Function>
Opcode BinaryOf() {
  return Plain(&Binary<A, B, Function>, 2);
}
template <class A, class B, class C, class Function>
Opcode TernaryOf() {
  return Plain(&Ternary<A, B, C, Function>, 3);
}

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_ELEMENTWISE_H_
