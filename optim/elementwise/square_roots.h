// Square roots with the same bits as ATen's on the CPU. ATen uses MKL, whose roots are not always correctly rounded.
#pragma once

#include <cstddef>

namespace ddp::optim {

/// Computes to[i] = sqrt(a[i]) for `size` elements; `to` may be `a`. T is float or double.
template <typename T>
void take_square_roots(T* to, const T* a, size_t size);

}  // namespace ddp::optim
