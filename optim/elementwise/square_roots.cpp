#include "optim/elementwise/square_roots.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

// MKL's functions. The libtorch_cpu in PyTorch's packages for x86 exports them; elsewhere they are null.
extern "C" {
[[gnu::weak]] void vmsSqrt(int size, const float* a, float* to, long long mode);
[[gnu::weak]] void vmdSqrt(int size, const double* a, double* to, long long mode);
}

namespace ddp::optim {
namespace {

// The mode that ATen passes (ATen/cpu/vml.h): VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE.
constexpr long long kMode = 0x2 | 0x140000 | 0x100;

template <typename T>
struct Mkl;
template <>
struct Mkl<float> {
  static constexpr auto dtype = at::kFloat;
  using Bits = uint32_t;
  static auto function() { return vmsSqrt; }
};
template <>
struct Mkl<double> {
  static constexpr auto dtype = at::kDouble;
  using Bits = uint64_t;
  static auto function() { return vmdSqrt; }
};

// Returns numbers of all exponents, made from pseudo-random bit patterns.
template <typename T>
std::vector<T> samples() {
  using Bits = typename Mkl<T>::Bits;
  std::vector<T> numbers(8192);
  Bits bits = 1;
  for (T& number : numbers) {
    bits = bits * static_cast<Bits>(6364136223846793005U) + static_cast<Bits>(1442695040888963407U);
    number = std::bit_cast<T>(bits);
  }
  return numbers;
}

template <typename T>
void take_by_aten(T* to, const T* a, size_t size) {
  if (to != a) std::memcpy(to, a, size * sizeof(T));
  at::Tensor tensor = at::from_blob(to, {static_cast<int64_t>(size)}, at::TensorOptions().dtype(Mkl<T>::dtype));
  at::cpu::sqrt_(tensor);
}

// Whether MKL's function gives the same bits as ATen, so that it can be called directly. A call through ATen takes as
// much time as the square roots of a small block.
template <typename T>
bool is_used_by_aten() {
  if (Mkl<T>::function() == nullptr) return false;
  const auto numbers = samples<T>();
  std::vector<T> direct(numbers.size()), by_aten(numbers.size());
  Mkl<T>::function()(static_cast<int>(numbers.size()), numbers.data(), direct.data(), kMode);
  take_by_aten(by_aten.data(), numbers.data(), numbers.size());
  return std::memcmp(direct.data(), by_aten.data(), numbers.size() * sizeof(T)) == 0;
}

}  // namespace

template <typename T>
void take_square_roots(T* to, const T* a, size_t size) {
  static const bool is_direct = is_used_by_aten<T>();
  if (is_direct) {
    Mkl<T>::function()(static_cast<int>(size), a, to, kMode);
  } else {
    take_by_aten(to, a, size);
  }
}

template void take_square_roots<float>(float* to, const float* a, size_t size);
template void take_square_roots<double>(double* to, const double* a, size_t size);

}  // namespace ddp::optim
