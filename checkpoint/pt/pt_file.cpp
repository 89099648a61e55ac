#include "checkpoint/pt/pt_file.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/unpickler.h"
#include "checkpoint/safetensors_header.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

constexpr std::string_view kPickleName = "/data.pkl";

// Elements of the tensor, and from its first to its last in the storage. Throws when either overflows.
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

}  // namespace

bool looks_like_pt(std::string_view first_bytes) {
  return first_bytes.starts_with("PK\3\4");
}

void refuse_legacy(std::string_view first_bytes, const std::filesystem::path& path) {
  // A pickled magic number.
  if (!first_bytes.starts_with("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19")) return;
  throw std::runtime_error(path.string() +
                           " is in torch.save's form of before PyTorch 1.6; load it in Python and save it again");
}

PtFile::PtFile(storage::Bytes bytes, const std::filesystem::path& path) : path_(path), bytes_(std::move(bytes)) {
  try {
    zip_ = std::make_unique<ZipReader>(bytes_.view);
    zip_->verify();
    const ZipEntry* pickle = nullptr;
    for (const auto& entry : zip_->entries()) {
      if (!entry.name.ends_with(kPickleName) || entry.name.find('/') + kPickleName.size() != entry.name.size())
        continue;
      if (pickle != nullptr) throw FormatError("it holds two pickles named data.pkl");
      pickle = &entry;
    }
    if (pickle == nullptr) throw FormatError("it is a zip file without a data.pkl");
    folder_ = pickle->name.substr(0, pickle->name.size() - kPickleName.size());
    if (const auto* order = zip_->find(folder_ + "/byteorder"); order != nullptr && order->data != "little") {
      throw FormatError("its numbers are big-endian");
    }
    pickle_ = unpickle(pickle->data);
  } catch (const FormatError& error) {
    throw std::runtime_error(path_.string() + " cannot be read as a .pt file: " + error.what());
  }
}

std::string_view PtFile::bytes_of(const TensorEntry& tensor) const {
  const auto* dtype = dtype_by_name(tensor.dtype);
  if (dtype == nullptr) throw FormatError("a tensor has the unknown dtype " + quote_name(tensor.dtype));
  const auto* storage = zip_->find(folder_ + "/data/" + tensor.storage);
  if (storage == nullptr) throw FormatError("a tensor's storage " + quote_name(tensor.storage) + " is missing");
  const auto [count, extent] = count_elements(tensor);
  const uint64_t available = storage->data.size() / dtype->bytes;
  const auto offset = static_cast<uint64_t>(tensor.offset);
  if (extent > available || offset > available - extent) {
    throw FormatError("a tensor needs elements " + std::to_string(offset) + " to " + std::to_string(offset + extent) +
                      " of a storage of " + std::to_string(available));
  }
  if (count > available) {
    throw FormatError("a tensor has more elements than its storage; save an expanded one with .contiguous()");
  }
  return storage->data.substr(offset * dtype->bytes, extent * dtype->bytes);
}

bool is_contiguous(const TensorEntry& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] == 0) return true;
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.sizes[i];
  }
  return true;
}

std::string gather_elements(const TensorEntry& tensor, std::string_view bytes) {
  if (bytes.empty() || is_contiguous(tensor)) return std::string(bytes);
  const auto element = dtype_by_name(tensor.dtype)->bytes;
  std::string result;
  result.reserve(count_elements(tensor).first * element);
  std::vector<int64_t> index(tensor.sizes.size(), 0);
  // Unsigned: the stride of an axis of one element counts for nothing and may be any, so that sums of it wrap around.
  uint64_t position = 0;
  while (true) {
    result.append(bytes.substr(position * element, element));
    size_t axis = index.size();
    while (axis-- > 0) {
      const auto stride = static_cast<uint64_t>(tensor.strides[axis]);
      position += stride;
      if (++index[axis] < tensor.sizes[axis]) break;
      position -= stride * static_cast<uint64_t>(tensor.sizes[axis]);
      index[axis] = 0;
    }
    if (axis == std::string::npos) return result;
  }
}

}  // namespace ddp::pt
