#include "checkpoint/shards/chunk_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/tensor_item.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp::shards {
namespace {

// The common part of a chunk and a request.
struct Job {
  const ReadRequest* request = nullptr;
  const Chunk* chunk = nullptr;
  Runs runs;
  int64_t element = 1;    // bytes
  bool is_whole = false;  // all of the chunk
  uint64_t base = 0;      // in the file, of the chunk's first element
  uint64_t begin = 0;     // … of the first run
  uint64_t end = 0;       // … of the last one
  int64_t next = 0;       // the first run that is not complete

  uint64_t position(const Runs::Run& run) const { return base + static_cast<uint64_t>(run.from * element); }

  // The chunk's elements begin at `position` of the file.
  void place(uint64_t position) {
    base = position;
    const auto last = runs[runs.size() - 1];
    begin = this->position(runs[0]);
    end = this->position(last) + static_cast<uint64_t>(last.count * element);
  }
};

using JobsByFile = std::map<uint32_t, std::vector<Job>>;

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

void add_jobs(const ReadRequest& request, JobsByFile& jobs) {
  if (numel(request.box) == 0) return;
  const auto element = static_cast<int64_t>(pt::dtype_by_name(request.tensor->dtype)->bytes);
  const auto [first, last] = candidates(*request.tensor, request.box);
  for (auto i = first; i < last; ++i) {
    const auto& chunk = request.tensor->chunks[i];
    const auto part = common_part(chunk.box, request.box);
    if (!part) continue;
    Job job{.request = &request,
            .chunk = &chunk,
            .runs = Runs(*part, chunk.box, request.box),
            .element = element,
            .is_whole = *part == chunk.box};
    job.place(chunk.begin);
    jobs[chunk.file].push_back(std::move(job));
  }
}

JobsByFile plan(const std::vector<ReadRequest>& requests) {
  JobsByFile jobs;
  for (const auto& request : requests) add_jobs(request, jobs);
  for (auto& [file, each] : jobs) std::ranges::sort(each, {}, &Job::begin);
  return jobs;
}

// Copies what `bytes`, which lie at `position` of the file, have of the job.
void copy(Job& job, uint64_t position, std::string_view bytes) {
  const auto end = position + bytes.size();
  for (; job.next < job.runs.size(); ++job.next) {
    const auto run = job.runs[job.next];
    const auto run_begin = job.position(run);
    const auto run_end = run_begin + static_cast<uint64_t>(run.count * job.element);
    if (run_begin >= end) return;
    const auto from = std::max(run_begin, position);
    const auto to = std::min(run_end, end);
    auto* target = job.request->target + run.to * job.element + (from - run_begin);
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

std::vector<Stretch> stretches(const std::vector<Job>& jobs) {
  constexpr uint64_t kGap = storage::kBlockBytes;  // no block is read twice
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
  for (const auto& stretch : stretches(jobs)) {
    auto first = stretch.first;  // of the jobs that are not complete
    try {
      file.read(stretch.begin, stretch.end, buffer, [&](uint64_t position, std::string_view bytes) {
        for (auto i = first; i < stretch.last && jobs[i].begin < position + bytes.size(); ++i) {
          copy(jobs[i], position, bytes);
        }
        while (first < stretch.last && jobs[first].next == jobs[first].runs.size()) ++first;
      });
    } catch (const storage::DamagedCheckpoint& error) {
      throw storage::DamagedCheckpoint(std::string(error.what()) + "; they hold " +
                                       safetensors::quote_name(jobs[first].request->name) +
                                       (stretch.last - first > 1 ? " and others" : ""));
    }
  }
}

// Fulfils jobs whose chunks are archives of torch.save().
class ArchiveReader {
 public:
  ArchiveReader(storage::FileSystem& file_system, const BlockFile& file, ReadBuffer& buffer)
      : file_system_(file_system), file_(file), buffer_(buffer) {}

  /// False when the job is one of plain elements now, whose place it knows.
  bool read(Job& job) {
    const pt::TensorItem item{.begin = job.chunk->begin,
                              .size = job.chunk->size,
                              .dtype = job.request->tensor->dtype,
                              .sizes = job.chunk->box.sizes};
    try {
      return read(job, item);
    } catch (const pt::FormatError& error) {
      throw storage::DamagedCheckpoint(file_.path().string() + ": what it holds of " +
                                       safetensors::quote_name(job.request->name) + " is damaged: " + error.what());
    }
  }

 private:
  bool read(Job& job, const pt::TensorItem& item) {
    // Small ones in one piece.
    if (job.is_whole && item.size <= kWholeBytes) {
      std::string archive;
      file_.read(item.begin, item.begin + item.size, buffer_,
                 [&](uint64_t, std::string_view bytes) { archive += bytes; });
      copy_all(job, pt::tensor_elements(archive, item));
      return true;
    }
    const auto place = pt::find_elements(file_system_, file_.descriptor(), file_.path(), item);
    const bool is_plain = place.is_row_major && !place.is_deflated;
    const bool is_storage = place.begin == place.storage_begin && place.size == place.storage_size;
    if (!is_plain || (job.is_whole && place.crc32 != 0 && !is_storage)) {
      copy_all(job, pt::read_tensor_item(file_system_, file_.descriptor(), file_.path(), item));
      return true;
    }
    job.place(place.begin);
    if (!job.is_whole || place.crc32 == 0) return false;
    uint32_t checksum = 0;
    file_.read(place.begin, place.begin + place.size, buffer_, [&](uint64_t position, std::string_view bytes) {
      checksum = pt::crc32(bytes.data(), bytes.size(), checksum);
      copy(job, position, bytes);
    });
    if (checksum != place.crc32) throw pt::FormatError("its elements are not those that were written (CRC-32)");
    return true;
  }

  static void copy_all(Job& job, const std::string& elements) {
    job.place(0);
    copy(job, 0, elements);
  }

  static constexpr uint64_t kWholeBytes = uint64_t{1} << 20;

  storage::FileSystem& file_system_;
  const BlockFile& file_;
  ReadBuffer& buffer_;
};

// Leaves the jobs of plain elements, in order.
void read_archives(storage::FileSystem& file_system, const BlockFile& file, std::vector<Job>& jobs,
                   ReadBuffer& buffer) {
  ArchiveReader reader(file_system, file, buffer);
  std::erase_if(jobs, [&](Job& job) { return job.chunk->form == ChunkForm::kTorchSave && reader.read(job); });
  std::ranges::stable_sort(jobs, {}, &Job::begin);
}

}  // namespace

void read_chunks(storage::FileSystem& file_system, const TensorCatalog& catalog, const BlockChecksums& checksums,
                 const std::vector<ReadRequest>& requests) {
  ReadBuffer buffer;
  auto jobs = plan(requests);
  for (auto& [number, each] : jobs) {
    const auto& path = catalog.files.at(number);
    const auto blocks = checksums.find(path.filename().string());
    const BlockFile file(file_system, path, blocks == checksums.end() ? nullptr : &blocks->second);
    read_archives(file_system, file, each, buffer);
    read_file(file, each, buffer);
  }
}

uint64_t bytes_to_read(const std::vector<ReadRequest>& requests) {
  uint64_t bytes = 0;
  for (const auto& [number, jobs] : plan(requests)) {
    for (const auto& stretch : stretches(jobs)) bytes += stretch.end - stretch.begin;
  }
  return bytes;
}

}  // namespace ddp::shards
