#include "checkpoint/dcp/value_items.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/pt/pt_file.h"

namespace ddp::dcp {
namespace {

// A gap of at most kMaxGapBytes bytes between two items is read with them, which is cheaper than another read. At most
// kMaxReadBytes bytes are read at once.
constexpr uint64_t kMaxGapBytes = uint64_t{32} << 10;
constexpr uint64_t kMaxReadBytes = uint64_t{4} << 20;

class Values {
 public:
  Values(storage::FileSystem& file_system, const std::filesystem::path& folder, const FolderMetadata& metadata)
      : file_system_(file_system), folder_(folder), metadata_(metadata) {}

  // Reads the items [begin, end) of `numbers`, which are in one file and ordered by position.
  template <typename Use>
  void read(const size_t* begin, const size_t* end, const Use& use) {
    open(item(*begin).file);
    const auto first = item(*begin).begin;
    uint64_t last = first;
    for (const auto* each = begin; each != end; ++each) last = std::max(last, item(*each).begin + item(*each).size);
    buffer_.resize(last - first);
    file_system_.read(file_, buffer_.data(), buffer_.size(), first, path_);
    for (const auto* each = begin; each != end; ++each) {
      parse(*each, std::string_view(buffer_).substr(item(*each).begin - first, item(*each).size), use);
    }
  }

  const StoredItem& item(size_t number) const { return metadata_.entries[number].item; }

 private:
  void open(uint32_t number) {
    if (file_.is_open() && number == open_) return;
    path_ = folder_ / metadata_.files[number];
    file_ = file_system_.open(path_);
    open_ = number;
  }

  template <typename Use>
  void parse(size_t number, std::string_view archive, const Use& use) {
    try {
      const pt::PtFile file(storage::Bytes{.view = archive}, "the archive");
      use(number, file.root());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(folder_.string() + ": the value " +
                               safetensors::quote_name(metadata_.entries[number].key) + " in " +
                               describe_file(metadata_.files[item(number).file]) + " is damaged: " + error.what());
    }
  }

  storage::FileSystem& file_system_;
  const std::filesystem::path& folder_;
  const FolderMetadata& metadata_;
  uint32_t open_ = 0;
  std::filesystem::path path_;
  storage::FileDescriptor file_;
  std::string buffer_;
};

}  // namespace

void for_each_value(storage::FileSystem& file_system, const std::filesystem::path& folder,
                    const FolderMetadata& metadata, std::vector<size_t> numbers,
                    const std::function<void(size_t number, const pt::Value& value)>& use) {
  Values values(file_system, folder, metadata);
  const auto place = [&](size_t number) {
    const auto& item = values.item(number);
    return std::tuple(item.file, item.begin, item.size);
  };
  std::ranges::sort(numbers, {}, place);
  for (size_t begin = 0; begin < numbers.size();) {
    const auto& first = values.item(numbers[begin]);
    uint64_t reached = first.begin + first.size;
    size_t end = begin + 1;
    for (; end < numbers.size(); ++end) {
      const auto& next = values.item(numbers[end]);
      if (next.file != first.file || next.begin > reached + kMaxGapBytes) break;
      const auto next_end = std::max(reached, next.begin + next.size);
      if (next_end - first.begin > kMaxReadBytes) break;
      reached = next_end;
    }
    values.read(numbers.data() + begin, numbers.data() + end, use);
    begin = end;
  }
}

std::string describe_file(const std::string& name) {
  const auto end = name.find('_', 2);
  const bool has_rank = name.starts_with("__") && end != std::string::npos && end > 2 &&
                        std::all_of(name.begin() + 2, name.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](char c) { return c >= '0' && c <= '9'; });
  return has_rank ? name + " of rank " + name.substr(2, end - 2) : safetensors::quote_name(name);
}

}  // namespace ddp::dcp
