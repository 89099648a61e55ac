// Folders of shard files: a manifest, checksums of blocks, and files with headers. What is accepted is read as a whole
// and in parts, and compared with a copy of single elements.
//
// An input is sections with '\x1e' between them: a byte that chooses (bit 0: the files are those that there are,
// whatever the manifest says, bit 1: no file has checksums of blocks, bit 2: the manifest's checksum is put right, bit
// 3: the checksums of blocks too), for each file its name, its bytes of data and its header, with '\x1f' between them,
// then the manifest, and the checksums of blocks.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/shards/shard_files.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/manifest.h"
#include "tests/checkpoint/forged_manifest.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp;
using fuzz::require;

constexpr char kSection = '\x1e';
constexpr char kField = '\x1f';
constexpr size_t kMaxData = 4096;

using Contents = std::map<std::string, std::string>;

// Files by name, in memory.
class FilesInMemory : public storage::FileSystem {
 public:
  explicit FilesInMemory(const Contents& contents) : contents_(contents) {}

  storage::FileDescriptor open(const std::filesystem::path& path) override {
    if (!contents_.contains(path.filename())) {
      throw std::system_error(ENOENT, std::generic_category(), "cannot open " + path.string());
    }
    return {};
  }
  uint64_t size(const storage::FileDescriptor& /*file*/, const std::filesystem::path& path) override {
    return contents_.at(path.filename()).size();
  }
  void read(const storage::FileDescriptor& /*file*/, void* data, size_t size, uint64_t position,
            const std::filesystem::path& path) override {
    const auto& content = contents_.at(path.filename());
    require(position <= content.size() && size <= content.size() - position, "no file is read beyond its end");
    std::memcpy(data, content.data() + position, size);
  }

 private:
  const Contents& contents_;
};

std::string data_of(size_t bytes) {
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 2654435761U >> 11U);
  return data;
}

std::vector<uint32_t> blocks_of(const std::string& content) {
  std::vector<uint32_t> blocks;
  for (size_t begin = 0; begin < content.size(); begin += storage::kBlockBytes) {
    blocks.push_back(crc32c(std::string_view(content).substr(begin, storage::kBlockBytes)));
  }
  return blocks;
}

struct Folder {
  std::set<std::string> names{};
  Contents contents{};
  shards::BlockChecksums checksums{};
};

// Throws what the readers of manifest and checksums throw.
Folder folder_of(std::string_view bytes) {
  std::vector<std::string_view> sections;
  for (fuzz::Input input(bytes); !input.is_empty();) sections.push_back(input.until(kSection));
  if (sections.size() < 3) return {};
  const auto mode = sections[0].empty() ? 0 : static_cast<unsigned>(sections[0].front());
  const auto has = [&](unsigned bit) { return (mode >> bit & 1U) != 0; };
  Folder folder;
  for (size_t i = 1; i + 2 < sections.size(); ++i) {
    fuzz::Input file(sections[i]);
    const std::string name(file.until(kField));
    const auto number = file.until(kField);
    size_t data = 0;
    std::from_chars(number.data(), number.data() + number.size(), data);
    const auto header = file.rest();
    std::string content(safetensors::kLengthBytes, '\0');
    const uint64_t length = header.size();
    std::memcpy(content.data(), &length, sizeof(length));
    content.append(header).append(data_of(std::min(data, kMaxData)));
    folder.contents[name] = std::move(content);
  }
  if (has(0)) {
    for (const auto& [name, content] : folder.contents) folder.names.insert(name);
  } else {
    std::string text(sections[sections.size() - 2]);
    if (has(2)) text = test::with_checksum(std::move(text));
    for (const auto& [name, record] : storage::parse_manifest(text).files) folder.names.insert(name);
  }
  if (has(1)) return folder;
  folder.checksums = shards::parse_block_checksums(sections.back());
  for (const auto& [name, content] : folder.contents) {
    if (has(3) && folder.checksums.contains(name)) folder.checksums[name] = blocks_of(content);
  }
  return folder;
}

// The bytes of the tensor's elements, copied one after the other; each must be in exactly one chunk.
std::string elements_of(const shards::TensorCatalog& catalog, const shards::CatalogTensor& tensor,
                        const Contents& contents) {
  const auto bytes = pt::dtype_by_name(tensor.dtype)->bytes;
  const auto count = static_cast<size_t>(shards::numel(shards::whole(tensor.shape)));
  std::string elements(count * bytes, '\0');
  std::vector<int> times(count, 0);
  for (const auto& chunk : tensor.chunks) {
    const auto& content = contents.at(catalog.files.at(chunk.file).filename());
    const auto here = static_cast<size_t>(shards::numel(chunk.box));
    require(here > 0 && chunk.size == here * bytes, "a chunk has the bytes of its elements");
    for (size_t i = 0; i < here; ++i) {
      size_t rest = i;
      size_t stride = 1;
      size_t place = 0;
      for (size_t k = tensor.shape.size(); k-- > 0;) {
        const auto size = static_cast<size_t>(chunk.box.sizes[k]);
        place += (static_cast<size_t>(chunk.box.offsets[k]) + rest % size) * stride;
        rest /= size;
        stride *= static_cast<size_t>(tensor.shape[k]);
      }
      require(place < count, "a chunk lies in its tensor");
      ++times[place];
      require(chunk.begin + (i + 1) * bytes <= content.size(), "a chunk lies in its file");
      elements.replace(place * bytes, bytes, content, chunk.begin + i * bytes, bytes);
    }
  }
  require(std::ranges::all_of(times, [](int each) { return each == 1; }), "each element is in one chunk");
  return elements;
}

void read_all(storage::FileSystem& file_system, const shards::TensorCatalog& catalog, const Folder& folder) {
  std::vector<shards::ReadRequest> requests;
  std::vector<std::string> expected;
  std::vector<std::string> targets;
  targets.reserve(2 * catalog.tensors.size());  // requests point into them
  for (const auto& [name, tensor] : catalog.tensors) {
    const auto elements = elements_of(catalog, tensor, folder.contents);
    const auto ask = [&](const shards::Box& box, const std::string& bytes) {
      expected.push_back(bytes);
      auto& target = targets.emplace_back(bytes.size(), '#');
      requests.push_back({.name = name, .tensor = &tensor, .box = box, .target = target.data()});
    };
    auto box = shards::whole(tensor.shape);
    ask(box, elements);
    if (tensor.shape.empty() || elements.empty()) continue;
    // Without the first and the last row.
    const auto row = elements.size() / static_cast<size_t>(tensor.shape[0]);
    box.offsets[0] = std::min<int64_t>(1, tensor.shape[0] - 1);
    box.sizes[0] = std::max<int64_t>(1, tensor.shape[0] - 2);
    ask(box, elements.substr(row * static_cast<size_t>(box.offsets[0]), row * static_cast<size_t>(box.sizes[0])));
  }
  uint64_t all = 0;
  for (const auto& [name, content] : folder.contents) all += content.size();
  require(shards::bytes_to_read(requests) <= all, "nothing is read twice");
  shards::read_chunks(file_system, catalog, folder.checksums, requests);
  require(targets == expected, "the elements are those of the files");
}

std::string seed(const std::string& mode, const std::vector<std::vector<shards::ChunkEntry>>& ranks,
                 bool has_places = true) {
  storage::Manifest manifest{.step = 3, .sequence = 1, .world_size = static_cast<int>(ranks.size())};
  shards::BlockChecksums checksums;
  std::string files;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    auto header = shards::shard_header(ranks[rank], {{"groups", "[]"}});
    if (!has_places) header.metadata.clear();
    const auto text = safetensors::format_header(header);
    const auto bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
    const auto name =
        shards::shard_file_name("model.safetensors", static_cast<int>(rank), static_cast<int>(ranks.size()));
    const auto content = text + data_of(bytes);
    manifest.files[name] = {.size = content.size(), .crc32c = crc32c(content)};
    if (rank != 1) checksums[name] = blocks_of(content);
    files += kSection + name + kField + std::to_string(bytes) + kField + text.substr(safetensors::kLengthBytes);
  }
  return mode + files + kSection + storage::format_manifest(manifest) + kSection +
         shards::format_block_checksums(checksums);
}

shards::ChunkEntry rows(const std::string& name, int64_t first, int64_t count, const std::vector<int64_t>& shape) {
  shards::ChunkEntry entry{.name = name, .dtype = "float32", .shape = shape, .box = shards::whole(shape)};
  entry.box.offsets[0] = first;
  entry.box.sizes[0] = count;
  return entry;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::vector<std::vector<shards::ChunkEntry>> two = {
      {rows("a", 0, 2, {4, 3}), rows("b", 0, 5, {7}), {.name = "c", .dtype = "int64", .shape = {}, .box = {}}},
      {rows("a", 2, 2, {4, 3}), rows("b", 5, 2, {7})}};
  const std::vector<std::vector<shards::ChunkEntry>> grid = {
      {{.name = "g", .dtype = "uint8", .shape = {4, 4}, .box = {.offsets = {0, 0}, .sizes = {2, 3}}}},
      {{.name = "g", .dtype = "uint8", .shape = {4, 4}, .box = {.offsets = {0, 3}, .sizes = {2, 1}}},
       rows("e", 0, 0, {0, 2})},
      {{.name = "g", .dtype = "uint8", .shape = {4, 4}, .box = {.offsets = {2, 0}, .sizes = {2, 4}}}}};
  std::vector<std::string> seeds;
  // '0' is 48, '@' 64: their lowest bits are 0.
  for (const char mode : {'0', '1', '2', '3', '3', '4', '8', '9', '9', '<', '@', 'A', 'C'}) {
    seeds.push_back(seed(std::string(1, mode), two));
    seeds.push_back(seed(std::string(1, mode), grid));
  }
  seeds.push_back(seed("3", {{rows("whole", 0, 3, {3, 2})}}, false));
  seeds.push_back(seed("3", {{}, {rows("a", 0, 3, {3, 2})}}));
  return seeds;
}

std::vector<std::string> fuzz::dictionary() {
  std::vector<std::string> words;
  for (const auto* name : {"\\\"saved_offsets\\\":", "\\\"tensor_shape\\\":", "\"shape\":", "\"data_offsets\":"}) {
    for (const auto* value : {"[0]", "[1,0]", "[2,0]", "[-1,0]", "[0,9223372036854775807]", "[9223372036854775807]",
                              "[4294967296,4294967296]", "[0,0]", "[]", "null", "[0,24]"}) {
      words.push_back(std::string(name) + value);
    }
  }
  for (const auto* word : {"-00001-of-00002", "-00002-of-00002", "-00003-of-00003", "-00001-of-99999",
                           "\"a\":", "\"b\":", "\\\"a\\\":", "\\\"b\\\":", "DCP_SHARDING_INFO", "\"F32\"", "\"U8\"",
                           "\"I64\"", "\x1e", "\x1f"}) {
    words.emplace_back(word);
  }
  return words;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  try {
    const auto folder = folder_of(bytes);
    FilesInMemory file_system(folder.contents);
    for (const auto& [part, files] : shards::shard_files_by_part(folder.names)) {
      const auto catalog = shards::read_shard_headers(file_system, "checkpoint", files, folder.checksums);
      read_all(file_system, catalog, folder);
    }
    return folder.names.empty() ? Outcome::kRefused : Outcome::kAccepted;
  } catch (const storage::ManifestError& error) {
    require(*error.what() != '\0', "a refusal says why");
  } catch (const std::invalid_argument& error) {
    require(std::string_view(error.what()).starts_with("block-checksums.txt"), "the error names the file");
  } catch (const storage::DamagedCheckpoint& error) {
    require(std::string_view(error.what()).find("checkpoint") != std::string_view::npos, "the error names the folder");
  }
  return Outcome::kRefused;
}
