#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>

#include <ddprun/detail/data/collate.h>

#include "data/datasets/batch_memory.h"
#include "data/datasets/npy_bytes.h"
#include "data/datasets/raster_bytes.h"
#include "data/formats/open_file.h"
#include "data/formats/shard_format.h"
#include "ddprun/data/streams.h"

namespace ddp {
namespace {

/// Returns the file with the first of the suffixes (separated by semicolons) that the sample contains; null if there is
/// none.
const ShardSample::File* find_file(const ShardSample& sample, std::string_view suffixes) {
  while (true) {
    const auto end = suffixes.find(';');
    const auto found = std::ranges::find(sample.files, suffixes.substr(0, end), &ShardSample::File::suffix);
    if (found != sample.files.end()) return &*found;
    if (end == std::string_view::npos) return nullptr;
    suffixes.remove_prefix(end + 1);
  }
}

const ShardSample::File& required_file(const ShardSample& sample, std::string_view suffixes) {
  if (const auto* file = find_file(sample, suffixes)) return *file;
  std::string known;
  for (const auto& file : sample.files) known += (known.empty() ? "" : ", ") + file.suffix;
  throw DataError(sample.url + "/" + sample.key, "expected a file with the suffix " + std::string(suffixes) + ", got " +
                                                     (known.empty() ? "none" : known));
}

at::Tensor planes_of(const Image& picture) {
  const at::Tensor rows =
      at::from_blob(const_cast<uint8_t*>(picture.pixels.data()), {picture.height, picture.width, 3}, at::kByte);
  return rows.permute({2, 0, 1}).clone(at::MemoryFormat::Contiguous);
}

/// Like at::stack(), but uses the memory of an earlier batch.
at::Tensor stacked_in(const detail::BatchMemory& memory, const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const bool are_alike = std::ranges::all_of(parts, [&](const at::Tensor& part) {
    return part.is_cpu() && part.layout() == at::kStrided && !part.requires_grad() && part.sizes() == first.sizes() &&
           part.scalar_type() == first.scalar_type();
  });
  if (!are_alike) return at::stack(parts);
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), std::ssize(parts));
  at::Tensor whole = memory.empty(sizes, first.scalar_type());
  return at::stack_out(whole, parts);
}

/// Throws std::invalid_argument if there are no archives, or if an address is empty.
void check_addresses(const std::vector<std::string>& urls) {
  if (urls.empty()) throw std::invalid_argument("WebDataset: expected at least one archive, got none");
  for (size_t i = 0; i < urls.size(); ++i) {
    std::string_view rest = urls[i];
    for (const std::string_view scheme : {"file:", "pipe:"}) {
      if (rest.starts_with(scheme)) rest.remove_prefix(scheme.size());
    }
    if (rest.find_first_not_of(" \t\n") != std::string_view::npos) continue;
    throw std::invalid_argument("WebDataset: address " + std::to_string(i + 1) + " of " + std::to_string(urls.size()) +
                                " is '" + urls[i] + "', expected a file, file:PATH or pipe:COMMAND");
  }
}

}  // namespace

std::vector<std::string> expand_shards(const std::string& pattern) {
  return expand_braces(pattern);
}

bool ShardSample::has(std::string_view suffix) const {
  return std::ranges::find(files, suffix, &File::suffix) != files.end();
}

std::filesystem::path ShardSample::place(std::string_view suffix) const {
  return url + "/" + key + "." + std::string(suffix);
}

const std::vector<uint8_t>& ShardSample::bytes(std::string_view suffixes) const {
  return required_file(*this, suffixes).content;
}

std::string ShardSample::text(std::string_view suffixes) const {
  const auto& content = bytes(suffixes);
  return {content.begin(), content.end()};
}

int64_t ShardSample::number_in(std::string_view suffixes) const {
  const File& file = required_file(*this, suffixes);
  std::string_view text(reinterpret_cast<const char*>(file.content.data()), file.content.size());
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error == std::errc() && end == text.end()) return value;
  throw DataError(place(file.suffix), "expected a whole number, got something else");
}

at::Tensor ShardSample::image(std::string_view suffixes, const DecodeOptions& options) const {
  const File& file = required_file(*this, suffixes);
  return planes_of(decode_image(file.content, place(file.suffix), options));
}

at::Tensor ShardSample::random_crop(std::string_view suffixes, int64_t size, SampleRandom& random,
                                    PartDecoding decoding) const {
  const File& file = required_file(*this, suffixes);
  const auto choose = [&](int64_t height, int64_t width) {
    return ResizedPart{.box = draw_resized_crop(height, width, random),
                       .height = size,
                       .width = size,
                       .part = {.height = size, .width = size}};
  };
  return planes_of(decode_part(file.content, place(file.suffix), choose, decoding));
}

at::Tensor ShardSample::centre_crop(std::string_view suffixes, int64_t shorter_side, int64_t size,
                                    PartDecoding decoding) const {
  const File& file = required_file(*this, suffixes);
  const auto choose = [&](int64_t height, int64_t width) { return centre_part(height, width, shorter_side, size); };
  return planes_of(decode_part(file.content, place(file.suffix), choose, decoding));
}

at::Tensor ShardSample::raster(std::string_view suffixes, const DecodeOptions& options) const {
  const File& file = required_file(*this, suffixes);
  return raster_of_bytes(file.content, place(file.suffix), options);
}

at::Tensor ShardSample::npy(std::string_view suffixes) const {
  const File& file = required_file(*this, suffixes);
  return npy_of_bytes(file.content, place(file.suffix));
}

struct WebDataset::Shared {
  std::vector<std::string> urls;
  Decode decode;
  WebDatasetOptions options;
  detail::BatchMemory memory{};
  std::mutex mutex{};
  std::set<std::string> noticed{};   // archives for which a message was printed
  std::set<std::string> left_out{};  // truncated archives and skipped samples

  void notice(const std::string& url, const std::string& place, const std::string& problem) {
    const std::lock_guard lock(mutex);
    left_out.insert(place);
    if (!noticed.insert(url).second) return;
    std::fprintf(stderr, "WebDataset: left out: %s\n", problem.c_str());
  }
};

struct WebDataset::Walk::State {
  State(std::shared_ptr<Shared> all, int64_t of_part)
      : shared(std::move(all)), part(of_part), url(shared->urls.at(static_cast<size_t>(of_part))) {
    guarded([&] { reader.emplace(url, static_cast<uint64_t>(shared->options.most_file_bytes)); });
  }

  /// Runs `action`. If damage is to be skipped, an error ends the pass over this archive.
  template <typename Action>
  void guarded(const Action& action) {
    try {
      action();
    } catch (const DataError& error) {
      reader.reset();
      if (!shared->options.skip_damaged) throw;
      shared->notice(url, url, error.what());
    }
  }

  std::optional<ShardReader::Sample> next(bool with_content) {
    std::optional<ShardReader::Sample> sample;
    if (reader) guarded([&] { sample = reader->next(with_content); });
    if (sample) ++number;
    return sample;
  }

  int64_t skip(int64_t count) {
    // An index also counts the samples after a damaged place, which skip_damaged leaves out.
    if (!has_asked && !shared->options.skip_damaged) read_index();
    if (index && reader && count > 0) {
      const auto size = static_cast<int64_t>(index->headers.size());
      const int64_t target = std::min(size, number + std::min(count, size));
      const int64_t skipped = target - number;
      if (skipped == 0) return 0;
      if (target < size && !reader->seek(index->headers[static_cast<size_t>(target)])) {
        throw DataError(url, "has an index, but cannot be read from its middle: is it compressed?");
      }
      if (target == size) reader.reset();
      number = target;
      return skipped;
    }
    int64_t skipped = 0;
    while (skipped < count && next(/*with_content=*/false)) ++skipped;
    return skipped;
  }

  void read_index() {
    has_asked = true;
    if (const std::string path = local_path(url); !path.empty()) index = read_shard_index(path);
  }

  std::shared_ptr<Shared> shared;
  int64_t part;
  std::string url;
  std::optional<ShardReader> reader{};
  std::optional<ShardIndex> index{};
  bool has_asked = false;
  int64_t number = 0;  // the number of the next sample
};

WebDataset::Walk::Walk(std::unique_ptr<State> state) : state_(std::move(state)) {}
WebDataset::Walk::~Walk() = default;
WebDataset::Walk::Walk(Walk&& other) noexcept = default;

std::optional<ShardSample> WebDataset::Walk::next() {
  auto found = state_->next(/*with_content=*/true);
  if (!found) return std::nullopt;
  ShardSample sample;
  sample.key = std::move(found->key);
  sample.url = state_->url;
  sample.part = state_->part;
  sample.number = state_->number - 1;
  for (auto& file : found->files) sample.files.push_back({std::move(file.suffix), std::move(file.content)});
  return sample;
}

int64_t WebDataset::Walk::skip(int64_t count) {
  return state_->skip(count);
}

WebDataset::WebDataset(const std::string& pattern, Decode decode, const WebDatasetOptions& options)
    : WebDataset(expand_shards(pattern), std::move(decode), options) {}

WebDataset::WebDataset(std::vector<std::string> urls, Decode decode, const WebDatasetOptions& options)
    : shared_(std::make_shared<Shared>()) {
  check_addresses(urls);
  if (!decode) throw std::invalid_argument("WebDataset: expected a function that decodes a sample, got none");
  shared_->urls = std::move(urls);
  shared_->decode = std::move(decode);
  shared_->options = options;
}

const std::vector<std::string>& WebDataset::urls() const {
  return shared_->urls;
}

int64_t WebDataset::parts() const {
  return std::ssize(shared_->urls);
}

WebDataset::Walk WebDataset::open(int64_t part) const {
  return Walk(std::make_unique<Walk::State>(shared_, part));
}

int64_t WebDataset::part_size(int64_t part) const {
  Walk walk = open(part);
  return walk.skip(std::numeric_limits<int64_t>::max());
}

Batch WebDataset::make_batch(std::span<ShardSample> samples, int64_t epoch) const {
  std::vector<Batch> made;
  for (const ShardSample& sample : samples) {
    // Archives have fewer samples than this, so sample numbers are unique.
    constexpr int64_t kMaxSamplesInArchive = int64_t{1} << 32;
    SampleRandom random(shared_->options.seed, epoch, sample.part * kMaxSamplesInArchive + sample.number);
    try {
      made.push_back(shared_->decode(sample, random));
    } catch (const std::exception& error) {
      if (!shared_->options.skip_damaged) throw;
      const std::string place = sample.url + "/" + sample.key;
      shared_->notice(sample.url, place, place + ": " + error.what());
    }
  }
  if (made.empty() && !samples.empty()) {
    throw DataError(samples.front().url, "none of the batch's samples can be decoded, beginning with '" +
                                             samples.front().key + "': see the notice on standard error");
  }
  return detail::stacked(made,
                         [this](const std::vector<at::Tensor>& parts) { return stacked_in(shared_->memory, parts); });
}

int64_t WebDataset::skipped() const {
  const std::lock_guard lock(shared_->mutex);
  return std::ssize(shared_->left_out);
}

int64_t index_shard(const std::filesystem::path& archive) {
  const OpenFile file(archive);
  const bool is_address = local_path(archive) != archive;  // a file whose name begins with "pipe:" or "file:"
  ShardReader reader((is_address ? "file:" : "") + archive.string(), std::numeric_limits<uint64_t>::max());
  ShardIndex index{.archive_bytes = file.size()};
  while (const auto sample = reader.next(/*with_content=*/false)) index.headers.push_back(sample->header);
  if (!reader.seek(0)) throw DataError(archive, "is compressed, so it can have no index: unpack it first");
  write_shard_index(archive, index);
  return std::ssize(index.headers);
}

}  // namespace ddp
