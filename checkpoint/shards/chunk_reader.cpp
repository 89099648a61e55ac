#include "checkpoint/shards/chunk_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/tensor_item.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/shards/lost_content.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp::shards {
namespace {

// If the gap between two needed ranges is smaller, its bytes are read as well: that is cheaper than another read, and
// no block is read twice.
constexpr uint64_t kGap = storage::kBlockBytes;

// What a chunk and a request have in common.
struct CommonPart {
  const ReadRequest* request = nullptr;
  const Chunk* chunk = nullptr;
  Runs runs;
  int64_t element = 1;    // bytes
  bool is_whole = false;  // all of the chunk
  uint64_t base = 0;      // in the file, of the chunk's first element

  uint64_t position(const Runs::Run& run) const { return base + static_cast<uint64_t>(run.from * element); }
};

// Consecutive runs of a part, without large gaps between them.
struct Job {
  const CommonPart* part = nullptr;
  uint64_t begin = 0;  // in the file, of the first run
  uint64_t end = 0;    // of the last one
  int64_t next = 0;    // the first run that is not complete
  int64_t last = 0;    // one past the last run
};

// The job for `count` runs from run `first` on.
Job job_of(const CommonPart& part, int64_t first, int64_t count) {
  const auto last = part.runs[first + count - 1];
  return {.part = &part,
          .begin = part.position(part.runs[first]),
          .end = part.position(last) + static_cast<uint64_t>(last.count * part.element),
          .next = first,
          .last = first + count};
}

using PartsByFile = std::map<uint32_t, std::vector<CommonPart>>;

// The chunks that may have something in common with `box`: they are ordered by their first row.
std::pair<size_t, size_t> candidates(const CatalogTensor& tensor, const Box& box) {
  const auto& chunks = tensor.chunks;
  if (box.sizes.empty()) return {0, chunks.size()};
  const auto end = std::partition_point(chunks.begin(), chunks.end(), [&](const Chunk& chunk) {
    return chunk.box.offsets[0] < box.offsets[0] + box.sizes[0];
  });
  // Where chunks are rows, their ends are in order too.
  auto begin = std::partition_point(chunks.begin(), end,
                                    [&](const Chunk& chunk) { return chunk.box.offsets[0] <= box.offsets[0]; });
  const auto is_rows = [&](const Chunk& chunk) {
    return std::equal(chunk.box.sizes.begin() + 1, chunk.box.sizes.end(), tensor.shape.begin() + 1);
  };
  if (begin == chunks.begin() || !is_rows(*(begin - 1))) return {0, end - chunks.begin()};
  return {begin - chunks.begin() - 1, end - chunks.begin()};
}

void add_parts(const ReadRequest& request, PartsByFile& parts) {
  if (numel(request.box) == 0) return;
  const auto element = static_cast<int64_t>(pt::dtype_by_name(request.tensor->dtype)->bytes);
  const auto [first, last] = candidates(*request.tensor, request.box);
  for (auto i = first; i < last; ++i) {
    const auto& chunk = request.tensor->chunks[i];
    const auto common = common_part(chunk.box, request.box);
    if (!common) continue;
    parts[chunk.file].push_back({.request = &request,
                                 .chunk = &chunk,
                                 .runs = Runs(*common, chunk.box, request.box),
                                 .element = element,
                                 .is_whole = *common == chunk.box,
                                 .base = chunk.begin});
  }
}

PartsByFile parts_of(const std::vector<ReadRequest>& requests) {
  PartsByFile parts;
  for (const auto& request : requests) add_parts(request, parts);
  return parts;
}

// In the order of the file's bytes.
std::vector<Job> read_jobs(const std::vector<CommonPart>& parts) {
  std::vector<Job> jobs;
  for (const auto& part : parts) {
    const auto runs = part.runs.neighbours(static_cast<int64_t>(kGap) / part.element);
    for (int64_t run = 0; run < part.runs.size(); run += runs) jobs.push_back(job_of(part, run, runs));
  }
  std::ranges::sort(jobs, {}, &Job::begin);
  return jobs;
}

// Copies those bytes of the job's runs that are in `bytes`, which begin at `position` in the file.
void copy(Job& job, uint64_t position, std::string_view bytes) {
  const auto& part = *job.part;
  const auto end = position + bytes.size();
  for (; job.next < job.last; ++job.next) {
    const auto run = part.runs[job.next];
    const auto run_begin = part.position(run);
    const auto run_end = run_begin + static_cast<uint64_t>(run.count * part.element);
    if (run_begin >= end) return;
    const auto from = std::max(run_begin, position);
    const auto to = std::min(run_end, end);
    auto* target = part.request->target + run.to * part.element + (from - run_begin);
    if (from < to) std::memcpy(target, bytes.data() + (from - position), to - from);
    if (run_end > end) return;
  }
}

// Bytes of a file that are read at once: those of jobs that follow each other closely.
struct Stretch {
  uint64_t begin = 0;
  uint64_t end = 0;
  size_t first = 0;  // of the jobs
  size_t last = 0;
};

std::vector<Stretch> merge_jobs_into_reads(const std::vector<Job>& jobs) {
  std::vector<Stretch> result;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (result.empty() || jobs[i].begin > result.back().end + kGap) {
      result.push_back({.begin = jobs[i].begin, .end = jobs[i].end, .first = i, .last = i + 1});
    } else {
      result.back().end = std::max(result.back().end, jobs[i].end);
      result.back().last = i + 1;
    }
  }
  return result;
}

void read_file(const BlockFile& file, std::vector<Job>& jobs, ReadBuffer& buffer) {
  for (const auto& stretch : merge_jobs_into_reads(jobs)) {
    auto first = stretch.first;  // of the jobs that are not complete
    file.read(stretch.begin, stretch.end, buffer, [&](uint64_t position, std::string_view bytes) {
      for (auto i = first; i < stretch.last && jobs[i].begin < position + bytes.size(); ++i) {
        copy(jobs[i], position, bytes);
      }
      while (first < stretch.last && jobs[first].next == jobs[first].last) ++first;
    });
  }
}

// Serves requests for chunks that are archives of torch.save().
class ArchiveReader {
 public:
  ArchiveReader(storage::FileSystem& file_system, const BlockFile& file, ReadBuffer& buffer)
      : file_system_(file_system), file_(file), buffer_(buffer) {}

  /// Returns false if the archive holds plain elements: then the part has their position, and is read like other parts.
  bool read(CommonPart& part) {
    const pt::TensorItem item{.begin = part.chunk->begin,
                              .size = part.chunk->size,
                              .dtype = part.request->tensor->dtype,
                              .sizes = part.chunk->box.sizes};
    const auto name = safetensors::quote_name(part.request->name);
    try {
      file_.expect(item.begin, item.begin + item.size);
      return read(part, item);
    } catch (const DamagedBytes& error) {
      throw storage::DamagedCheckpoint(std::string(error.what()) + "; they hold " + name);
    } catch (const pt::FormatError& error) {
      throw storage::DamagedCheckpoint(file_.path().string() + ": its part of " + name +
                                       " is damaged: " + error.what());
    }
  }

 private:
  bool read(CommonPart& part, const pt::TensorItem& item) {
    // Small ones in one piece.
    if (part.is_whole && item.size <= kWholeBytes) {
      std::string archive;
      file_.read(item.begin, item.begin + item.size, buffer_,
                 [&](uint64_t, std::string_view bytes) { archive += bytes; });
      copy_all(part, pt::tensor_elements(archive, item));
      return true;
    }
    const auto place = pt::find_elements(file_system_, file_.descriptor(), file_.path(), item);
    const bool is_plain = place.is_row_major && !place.is_deflated;
    const bool is_storage = place.begin == place.storage_begin && place.size == place.storage_size;
    if (!is_plain || (part.is_whole && place.crc32 != 0 && !is_storage)) {
      copy_all(part, pt::read_tensor_item(file_system_, file_.descriptor(), file_.path(), item));
      return true;
    }
    part.base = place.begin;
    if (!part.is_whole || place.crc32 == 0) return false;
    uint32_t checksum = 0;
    auto job = job_of(part, 0, part.runs.size());
    file_.read(place.begin, place.begin + place.size, buffer_, [&](uint64_t position, std::string_view bytes) {
      checksum = pt::crc32(bytes.data(), bytes.size(), checksum);
      copy(job, position, bytes);
    });
    if (checksum != place.crc32) throw pt::FormatError("its elements are not those that were written (CRC-32)");
    return true;
  }

  static void copy_all(CommonPart& part, const std::string& elements) {
    part.base = 0;
    auto job = job_of(part, 0, part.runs.size());
    copy(job, 0, elements);
  }

  static constexpr uint64_t kWholeBytes = uint64_t{1} << 20;

  storage::FileSystem& file_system_;
  const BlockFile& file_;
  ReadBuffer& buffer_;
};

// Reads the parts in archives. Parts that are plain elements remain in `parts`.
void read_archives(storage::FileSystem& file_system, const BlockFile& file, std::vector<CommonPart>& parts,
                   ReadBuffer& buffer) {
  ArchiveReader reader(file_system, file, buffer);
  std::erase_if(parts,
                [&](CommonPart& part) { return part.chunk->form == ChunkForm::kTorchSave && reader.read(part); });
}

// Text such as "; they hold 'a' and others", for the tensors that have elements among these bytes.
std::string holders(const std::vector<CommonPart>& parts, const DamagedBytes& bytes) {
  const std::string* name = nullptr;
  for (const auto& job : read_jobs(parts)) {
    if (job.begin >= bytes.end() || job.end <= bytes.begin()) continue;
    if (name != nullptr && *name != job.part->request->name) {
      return "; they hold " + safetensors::quote_name(*name) + " and others";
    }
    name = &job.part->request->name;
  }
  return name == nullptr ? "" : "; they hold " + safetensors::quote_name(*name);
}

}  // namespace

void read_chunks(storage::FileSystem& file_system, const TensorCatalog& catalog, const BlockChecksums& checksums,
                 const std::vector<ReadRequest>& requests) {
  ReadBuffer buffer;
  auto all_parts = parts_of(requests);
  for (auto& [number, parts] : all_parts) {
    const auto& path = catalog.files.at(number);
    const auto blocks = checksums.find(path.filename().string());
    try {
      const BlockFile file(file_system, path, blocks == checksums.end() ? nullptr : &blocks->second);
      read_archives(file_system, file, parts, buffer);
      auto jobs = read_jobs(parts);
      read_file(file, jobs, buffer);
    } catch (const DamagedBytes& error) {
      throw storage::DamagedCheckpoint(error.what() + owner(path.filename().string()) + holders(parts, error));
    }
  }
}

uint64_t bytes_to_read(const std::vector<ReadRequest>& requests) {
  uint64_t bytes = 0;
  for (const auto& [number, parts] : parts_of(requests)) {
    for (const auto& stretch : merge_jobs_into_reads(read_jobs(parts))) bytes += stretch.end - stretch.begin;
  }
  return bytes;
}

}  // namespace ddp::shards
