#include "checkpoint/pt/pt_file.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/legacy_file.h"
#include "checkpoint/pt/script_classes.h"
#include "checkpoint/pt/unpickler.h"
#include "checkpoint/pt/zip_reader.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

constexpr std::string_view kPickleName = "/data.pkl";

bool looks_like_zip(std::string_view file) {
  return file.starts_with("PK\3\4");
}

std::string describe_other_zip(const ZipReader& zip) {
  std::string text = "it is a zip file without a data.pkl, as torch.save writes one";
  if (zip.entries().empty()) return text + ": it is empty";
  const auto& first = zip.entries().front().name;
  if (first.ends_with(".npy"))
    return "it is an archive of NumPy (.npz): save a dict of tensors with torch.save instead";
  return text + ": it begins with " + quote_name(first) + "; unpack it first, if it holds the file";
}

constexpr const char* kNoCompressionAdvice = "; save it again with torch.save, which does not compress";

// In a deflated pickle, every unpacked byte may make a value, although the file holds only a small part of these bytes.
void check_pickle_size(const ZipEntry& pickle, size_t file_bytes) {
  constexpr size_t kAlways = 1'000'000;
  if (pickle.size > kMaxPickleBytes) throw FormatError("its pickle is too large to be read");
  if (!pickle.is_deflated || pickle.size <= std::max(kAlways, file_bytes)) return;
  throw FormatError("its pickle would have " + std::to_string(pickle.size) + " bytes when unpacked: expected at most " +
                    std::to_string(kAlways) + " or the file's size" + kNoCompressionAdvice);
}

// A file that is much larger when unpacked holds almost nothing, and unpacking it takes seconds. The limits are those
// of data/formats/limits.h.
void check_unpacked_size(const ZipReader& zip, uint64_t file_bytes) {
  const uint64_t most = std::max(uint64_t{512} << 20, 128 * file_bytes);
  uint64_t bytes = 0;
  for (const auto& entry : zip.entries()) {
    if (!entry.is_deflated) continue;
    if (entry.size <= most - bytes) {
      bytes += entry.size;
      continue;
    }
    throw FormatError("its " + std::to_string(file_bytes) + " bytes would be unpacked to more than " +
                      std::to_string(most) + ", expected at most 512 MiB or 128 times its size" + kNoCompressionAdvice);
  }
}

// The bytes of each storage that tensors use. Bytes that several tensors use count for each of them.
std::map<std::string, uint64_t> used_bytes(const Pickle& pickle) {
  std::map<std::string, uint64_t> used;
  for (const auto& tensor : pickle.tensors()) {
    const auto* dtype = dtype_by_name(tensor.dtype);
    if (dtype == nullptr) continue;  // read() refuses it, and also a tensor that is too large for its storage
    constexpr uint64_t kMax = uint64_t{1} << 56;
    const auto [count, extent] = count_elements(tensor);
    uint64_t& bytes = used[tensor.storage];
    bytes = std::min(kMax, bytes + std::min({kMax, count, extent}) * dtype->bytes);
  }
  return used;
}

// The one data.pkl below a folder.
const ZipEntry& find_pickle(const ZipReader& zip) {
  const ZipEntry* pickle = nullptr;
  for (const auto& entry : zip.entries()) {
    if (!entry.name.ends_with(kPickleName) || entry.name.find('/') + kPickleName.size() != entry.name.size()) continue;
    if (pickle != nullptr) throw FormatError("it holds two pickles named data.pkl");
    pickle = &entry;
  }
  if (pickle == nullptr) throw FormatError(describe_other_zip(zip));
  return *pickle;
}

}  // namespace

bool looks_like_pt(std::string_view file) {
  return looks_like_zip(file) || looks_like_legacy(file) || looks_like_tar(file);
}

class PtFile::Content {
 public:
  explicit Content(storage::Bytes bytes) : bytes_(std::move(bytes)) {
    if (looks_like_zip(bytes_.view)) {
      open_zip();
    } else {
      refuse_tar(bytes_.view);
      auto legacy = read_legacy(bytes_.view);
      pickle_ = std::move(legacy.pickle);
      storages_ = std::move(legacy.storages);
    }
  }

  const Pickle& pickle() const { return *pickle_; }
  bool has_checksums() const { return zip_ != nullptr && zip_->has_checksums(); }

  std::string_view storage(const std::string& key) {
    if (const auto known = storages_.find(key); known != storages_.end()) return known->second;
    const auto* entry = zip_ != nullptr ? zip_->find(folder_ + "/data/" + key) : nullptr;
    if (entry == nullptr) throw FormatError("a tensor's storage " + quote_name(key) + " is missing");
    if (entry->is_deflated) check_use(key, entry->size);
    return storages_[key] = bytes_of(*entry);
  }

 private:
  void open_zip() {
    zip_ = std::make_unique<ZipReader>(bytes_.view);
    check_unpacked_size(*zip_, bytes_.view.size());
    zip_->verify();
    const auto& pickle = find_pickle(*zip_);
    check_pickle_size(pickle, bytes_.view.size());
    folder_ = pickle.name.substr(0, pickle.name.size() - kPickleName.size());
    constexpr std::string_view kLittle = "little";
    const auto* order = zip_->find(folder_ + "/byteorder");
    if (order != nullptr && (order->size != kLittle.size() || bytes_of(*order) != kLittle)) {
      throw FormatError("its numbers are big-endian, which is not supported");
    }
    pickle_ = unpickle(bytes_of(pickle));
    find_weights();
  }

  // A deflated storage is kept in memory as a whole, even if tensors use only a part of it.
  void check_use(const std::string& key, uint64_t size) {
    if (used_.empty()) used_ = used_bytes(*pickle_);
    const uint64_t unused = size - std::min(size, used_[key]);
    if (unused <= std::max<uint64_t>(uint64_t{32} << 20, 32 * bytes_.view.size())) return;
    throw FormatError("the storage " + quote_name(key) + " would have " + std::to_string(size) +
                      " bytes when unpacked, of which no tensor uses " + std::to_string(unused) + kNoCompressionAdvice);
  }

  // The code beside TorchScript's objects distinguishes their parameters and buffers from other attributes.
  void find_weights() {
    if (pickle_->objects().empty()) return;
    constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
    uint64_t bytes = 0;
    for (const auto& entry : zip_->entries()) {
      if (!entry.name.starts_with(folder_ + "/code/") || !entry.name.ends_with(".py")) continue;
      bytes += entry.size;
      if (bytes > kMaxBytes) break;
      const auto source = entry.is_deflated ? unpack(entry) : std::string(entry.data);
      add_script_classes(std::string_view(entry.name).substr(folder_.size() + 1), source, classes_);
    }
    for (auto& object : pickle_->objects()) {
      const auto known = classes_.find(object.class_name);
      if (known != classes_.end()) object.weights = &known->second;
    }
  }

  // A deflated entry is unpacked when it is asked for, and then kept.
  std::string_view bytes_of(const ZipEntry& entry) {
    if (!entry.is_deflated) return entry.data;
    return unpacked_[std::string(entry.name)] = unpack(entry);
  }

  storage::Bytes bytes_;
  std::unique_ptr<ZipReader> zip_;
  std::string folder_;
  ScriptClasses classes_;
  std::unique_ptr<Pickle> pickle_;
  std::map<std::string, uint64_t> used_;
  std::map<std::string, std::string> unpacked_;
  std::map<std::string, std::string_view> storages_;
};

PtFile::PtFile(storage::Bytes bytes, const std::filesystem::path& path) : path_(path), size_(bytes.view.size()) {
  try {
    // Such a file is made of .pt files, one for each tensor.
    if (path.extension() == ".distcp") throw FormatError(describe_unsupported_file(bytes.view, path));
    content_ = std::make_shared<Content>(std::move(bytes));
  } catch (const FormatError& error) {
    throw std::runtime_error(path_.string() + " cannot be read as a .pt file: " + error.what());
  }
}

const Value& PtFile::root() const {
  return content_->pickle().root;
}

bool PtFile::has_checksums() const {
  return content_->has_checksums();
}

std::string_view PtFile::bytes_of(const TensorEntry& tensor) const {
  const auto* dtype = dtype_by_name(tensor.dtype);
  if (dtype == nullptr) throw FormatError("a tensor has the unknown dtype " + quote_name(tensor.dtype));
  const auto storage = content_->storage(tensor.storage);
  const auto [count, extent] = count_elements(tensor);
  if (extent == 0) return storage.substr(0, 0);  // wherever it begins: nothing is read
  const uint64_t available = storage.size() / dtype->bytes;
  const auto offset = static_cast<uint64_t>(tensor.offset);
  if (extent > available || offset > available - extent) {
    throw FormatError("a tensor needs elements " + std::to_string(offset) + " to " + std::to_string(offset + extent) +
                      " of a storage of " + std::to_string(available));
  }
  return storage.substr(offset * dtype->bytes, extent * dtype->bytes);
}

}  // namespace ddp::pt
