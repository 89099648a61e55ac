// Square roots with the bits of ATen's on the CPU, which are MKL's and not always the correctly rounded ones.
#pragma once

#include <cstddef>

namespace ddp::optim {

/// to[i] = the root of a[i], for `size` numbers of an array; `to` may be `a`. T is float or double.
template <typename T>
void take_square_roots(T* to, const T* a, size_t size);

}  // namespace ddp::optim
