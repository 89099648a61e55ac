#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

#include <ddprun/samplers/shard.h>

#include "data/formats/open_file.h"
#include "data/formats/shard_format.h"
#include "ddprun/data/streams.h"

namespace ddp {

struct ShardWriter::State {
  std::filesystem::path prefix;
  ShardWriterOptions options;
  std::vector<std::filesystem::path> archives{};
  std::unique_ptr<ReplacedFile> file{};
  ShardIndex index{};
  std::string last_key{};

  std::filesystem::path next_path() const {
    constexpr size_t kDigits = 6;
    std::string number = std::to_string(archives.size());
    if (number.size() < kDigits) number.insert(0, kDigits - number.size(), '0');
    return prefix.string() + "-" + number + ".tar";
  }

  /// Calls `append`, which writes to the file. If it throws, restores the file, because a partially written sample
  /// would damage the archive.
  template <typename Append>
  void write_whole(const Append& append) {
    const uint64_t begin = file->position();
    try {
      append();
    } catch (...) {
      file->truncate(begin);
      throw;
    }
  }

  void end_archive() {
    if (!file) return;
    const auto path = next_path();
    // Removes the index of an earlier archive with this name.
    std::filesystem::remove(index_path(path));
    constexpr size_t kEnd = 1024;  // two blocks of zeros
    write_whole([&] { file->write(std::string(kEnd, '\0')); });
    const auto written = std::exchange(file, nullptr);
    ShardIndex of_written = std::exchange(index, {});
    of_written.archive_bytes = written->position();
    last_key.clear();
    written->commit();
    archives.push_back(path);
    write_shard_index(path, of_written);
  }
};

ShardWriter::ShardWriter(std::filesystem::path prefix, const ShardWriterOptions& options)
    : state_(std::make_unique<State>(State{.prefix = std::move(prefix), .options = options})) {
  if (options.most_samples < 1 || options.most_bytes < 1) {
    throw std::invalid_argument("ShardWriter: expected at least 1 sample and 1 byte in an archive, got " +
                                std::to_string(options.most_samples) + " and " + std::to_string(options.most_bytes));
  }
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& files) {
  State& state = *state_;
  std::vector<std::string> seen;
  for (const auto& [suffix, content] : files) {
    // Checks that a reader would get the same key and suffix from the name.
    const auto read = key_and_suffix(key + "." + suffix);
    const bool is_twice = std::ranges::find(seen, suffix) != seen.end();
    const bool has_zero = (key + suffix).find('\0') != std::string::npos;  // a zero byte would end the name
    if (key == state.last_key || is_twice || has_zero || suffix.empty() || !read || *read != std::pair(key, suffix)) {
      throw std::invalid_argument(
          "ShardWriter: expected a key other than the one before, without a dot after its last "
          "slash, and different suffixes in lower case, got '" +
          key + "' and '" + suffix + "'");
    }
    seen.push_back(suffix);
  }
  if (files.empty()) throw std::invalid_argument("ShardWriter: sample '" + key + "' has no files");
  const bool is_full = state.file && (std::ssize(state.index.headers) >= state.options.most_samples ||
                                      static_cast<int64_t>(state.file->position()) >= state.options.most_bytes);
  if (is_full) state.end_archive();
  if (!state.file) state.file = std::make_unique<ReplacedFile>(state.next_path());
  const uint64_t header = state.file->position();
  state.write_whole([&] {
    for (const auto& [suffix, content] : files) {
      state.file->write(tar_header(key + "." + suffix, content.size()));
      state.file->write(content);
      state.file->write(tar_padding(content.size()));
    }
    state.index.headers.push_back(header);
  });
  state.last_key = key;
}

void ShardWriter::close() {
  state_->end_archive();
}

const std::vector<std::filesystem::path>& ShardWriter::archives() const {
  return state_->archives;
}

std::vector<std::filesystem::path> write_shards(const ImageListing& listing, const std::filesystem::path& prefix,
                                                std::optional<uint64_t> seed, const ShardWriterOptions& options) {
  const auto count = static_cast<int64_t>(listing.files.size());
  ShardWriter writer(prefix, options);
  int64_t number = 0;
  for (const int64_t i : seed ? permutation(count, *seed) : ascending(count)) {
    const auto& file = listing.files[static_cast<size_t>(i)];
    constexpr size_t kDigits = 9;
    std::string key = std::to_string(number++);
    key.insert(0, kDigits - std::min(kDigits, key.size()), '0');
    std::string suffix = file.extension().string().substr(1);
    std::ranges::transform(suffix, suffix.begin(), [](unsigned char letter) { return std::tolower(letter); });
    constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;
    writer.add(key, {{suffix, read_small_file(file, kMaxFileBytes)},
                     {"cls", std::to_string(listing.labels[static_cast<size_t>(i)])}});
  }
  writer.close();
  return writer.archives();
}

}  // namespace ddp
