#include "checkpoint/pt/legacy_file.h"

#include <array>
#include <cstdint>
#include <cstring>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/unpickler.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

using namespace std::string_view_literals;

// 0x1950a86a20f9469cfc6c, pickled with protocol 2, or with another one that the caller of torch.save chose; 4 and 5
// have frames.
constexpr std::string_view kMagicNumber{"\x8a\nl\xfc\x9c\x46\xf9\x20j\xa8P\x19."};
constexpr std::array kMagicPrefixes = {"\x80\x02"sv, "\x80\x03"sv, "\x80\x04\x95\x0d\0\0\0\0\0\0\0"sv,
                                       "\x80\x05\x95\x0d\0\0\0\0\0\0\0"sv};
constexpr int64_t kProtocol = 1001;

// Bytes of the pickled number that `file` begins with; 0 for another beginning.
size_t magic_bytes(std::string_view file) {
  for (const auto beginning : kMagicPrefixes) {
    if (!file.starts_with(beginning) || !file.substr(beginning.size()).starts_with(kMagicNumber)) continue;
    return beginning.size() + kMagicNumber.size();
  }
  return 0;
}

// The first reference to each storage, which says how many bytes an element has.
std::map<std::string_view, const StorageEntry*> by_key(const Pickle& pickle) {
  std::map<std::string_view, const StorageEntry*> result;
  for (const auto& storage : pickle.storages()) result.emplace(storage.key, &storage);
  return result;
}

// A storage's number of elements and its bytes, off the front of `rest`.
std::string_view take_storage(std::string_view& rest, const StorageEntry& storage) {
  int64_t elements = 0;
  if (rest.size() < sizeof(elements)) throw FormatError("it is truncated within its storages");
  std::memcpy(&elements, rest.data(), sizeof(elements));
  rest.remove_prefix(sizeof(elements));
  if (elements != storage.elements) {
    throw FormatError("the storage " + quote_name(storage.key) + " has " + std::to_string(elements) +
                      " elements where the pickle says " + std::to_string(storage.elements));
  }
  const uint64_t each = storage.dtype.empty() ? 1 : storage_element_bytes(storage.dtype);
  if (each == 0 || static_cast<uint64_t>(elements) > rest.size() / each) {
    throw FormatError("it is truncated within the storage " + quote_name(storage.key));
  }
  const auto bytes = rest.substr(0, static_cast<uint64_t>(elements) * each);
  rest.remove_prefix(bytes.size());
  return bytes;
}

}  // namespace

bool looks_like_legacy(std::string_view file) {
  return magic_bytes(file) > 0;
}

LegacyFile read_legacy(std::string_view file) {
  if (!looks_like_legacy(file)) throw FormatError("it does not begin as a file of torch.save does");
  auto rest = file.substr(magic_bytes(file));
  const auto protocol = unpickle_first(rest);
  if (!protocol->root.is(Kind::kInt) || protocol->root.integer() != kProtocol) {
    throw FormatError("its protocol version is unknown");
  }
  if (!unpickle_first(rest)->root.is(Kind::kDict)) throw FormatError("its description of the system is damaged");
  LegacyFile result;
  result.pickle = unpickle_first(rest);
  const auto keys = unpickle_first(rest);
  if (!keys->root.is(Kind::kList)) throw FormatError("its list of storages is damaged");
  const auto storages = by_key(*result.pickle);
  for (const auto& key : keys->root.items()) {
    if (!key.is(Kind::kText) && !key.is(Kind::kBytes)) throw FormatError("its list of storages is damaged");
    const auto known = storages.find(key.text());
    if (known == storages.end()) {
      throw FormatError("it has a storage " + quote_name(key.text()) + " that nothing refers to");
    }
    const auto bytes = take_storage(rest, *known->second);
    if (!result.storages.emplace(key.text(), bytes).second) {
      throw FormatError("it has two storages " + quote_name(key.text()));
    }
  }
  if (!rest.empty()) throw FormatError("other bytes follow its end");
  return result;
}

bool looks_like_tar(std::string_view file) {
  constexpr size_t kMagicPosition = 257;
  return file.size() > kMagicPosition && file.substr(kMagicPosition).starts_with("ustar");
}

void refuse_tar(std::string_view file) {
  if (!looks_like_tar(file)) return;
  throw FormatError(
      "it is a tar archive, as torch.save wrote before PyTorch 0.1.10, which torch.load(weights_only=True) does not "
      "read either; load it in Python with weights_only=False, if you trust it, and save it again");
}

}  // namespace ddp::pt
