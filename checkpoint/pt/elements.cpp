#include "checkpoint/pt/elements.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"

namespace ddp::pt {
namespace {

bool is_contiguous(const TensorEntry& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] == 0) return true;
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, tensor.sizes[i], &expected)) return false;
  }
  return true;
}

// Changes a number's sign: the first bit of a float, the two's complement of an integer.
void negate(char* number, size_t size, bool is_float) {
  if (is_float) {
    number[size - 1] = static_cast<char>(number[size - 1] ^ 0x80);
    return;
  }
  uint64_t value = 0;
  std::memcpy(&value, number, size);
  value = -value;
  std::memcpy(number, &value, size);
}

void apply_marks(const TensorEntry& tensor, char* target, uint64_t size) {
  const bool is_complex = tensor.dtype.starts_with("complex");
  const bool is_float = is_complex || tensor.dtype.find("float") != std::string::npos;
  const auto element = dtype_by_name(tensor.dtype)->bytes;
  const auto number = is_complex ? element / 2 : element;
  for (uint64_t begin = 0; begin < size; begin += number) {
    const bool is_imaginary = is_complex && begin % element != 0;
    if (tensor.is_neg != (tensor.is_conj && is_imaginary)) negate(target + begin, number, is_float);
  }
}

// Axes from `axis` on lie one after the other; so they are copied at once.
size_t first_of_run(const TensorEntry& tensor) {
  int64_t expected = 1;
  size_t axis = tensor.sizes.size();
  while (axis > 0 && (tensor.sizes[axis - 1] == 1 || tensor.strides[axis - 1] == expected)) {
    --axis;
    expected *= tensor.sizes[axis];
  }
  return axis;
}

}  // namespace

std::pair<uint64_t, uint64_t> count_elements(const TensorEntry& tensor) {
  uint64_t count = 1;
  uint64_t last = 0;
  bool overflow = false;
  const bool is_empty = std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end();
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const auto size = static_cast<uint64_t>(tensor.sizes[i]);
    overflow |= __builtin_mul_overflow(count, std::max<uint64_t>(size, 1), &count);
    uint64_t step = 0;
    overflow |=
        __builtin_mul_overflow(std::max<uint64_t>(size, 1) - 1, static_cast<uint64_t>(tensor.strides[i]), &step);
    overflow |= __builtin_add_overflow(last, step, &last);
  }
  if (overflow || count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 16) {
    throw FormatError("a tensor's size overflows");
  }
  return is_empty ? std::pair<uint64_t, uint64_t>{0, 0} : std::pair{count, last + 1};
}

bool is_plain(const TensorEntry& tensor) {
  return is_contiguous(tensor) && !tensor.is_conj && !tensor.is_neg;
}

uint64_t gathered_size(const TensorEntry& tensor) {
  return count_elements(tensor).first * dtype_by_name(tensor.dtype)->bytes;
}

void CopyAllowance::spend(const TensorEntry& tensor) {
  const auto size = gathered_size(tensor);
  if (size > remaining_) {
    throw FormatError("a tensor that is expanded to " + std::to_string(size) +
                      " bytes; to store all of them, save it with .contiguous()");
  }
  remaining_ -= size;
}

void gather_elements(const TensorEntry& tensor, std::string_view bytes, char* target) {
  const auto total = gathered_size(tensor);
  if (total == 0) return;
  const auto element = dtype_by_name(tensor.dtype)->bytes;
  const auto axes = first_of_run(tensor);
  uint64_t run = element;
  for (size_t axis = axes; axis < tensor.sizes.size(); ++axis) run *= static_cast<uint64_t>(tensor.sizes[axis]);
  std::vector<int64_t> index(axes, 0);
  // Unsigned: the stride of an axis of one element counts for nothing and may be any, so that sums of it wrap around.
  uint64_t position = 0;
  for (uint64_t written = 0; written < total; written += run) {
    std::memcpy(target + written, bytes.data() + position * element, run);
    for (size_t axis = axes; axis-- > 0;) {
      const auto stride = static_cast<uint64_t>(tensor.strides[axis]);
      position += stride;
      if (++index[axis] < tensor.sizes[axis]) break;
      position -= stride * static_cast<uint64_t>(tensor.sizes[axis]);
      index[axis] = 0;
    }
  }
  if (tensor.is_conj || tensor.is_neg) apply_marks(tensor, target, total);
}

std::string gather_elements(const TensorEntry& tensor, std::string_view bytes) {
  std::string result(gathered_size(tensor), '\0');
  gather_elements(tensor, bytes, result.data());
  return result;
}

}  // namespace ddp::pt
