#include "checkpoint/sharded_save.h"

#include <nlohmann/json.hpp>

#include <map>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <ddprun/comm/collectives.h>

#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp {

// A file that a rank has written.
struct ShardedSave::File {
  std::string name{};
  storage::FileRecord record{};
  std::vector<uint32_t> blocks{};
};

namespace {

using nlohmann::json;

// The file of one part in the format's order.
struct PlannedFile {
  std::string head{};
  std::vector<at::Tensor> tensors{};
};

PlannedFile plan_file(const ShardedPart& part) {
  std::vector<shards::ChunkEntry> chunks;
  std::map<std::string, at::Tensor> by_name;
  for (const auto& piece : part.pieces) {
    chunks.push_back(piece.chunk);
    by_name.emplace(piece.chunk.name, piece.rows);
  }
  const auto header = shards::shard_header(chunks, part.metadata);
  PlannedFile file{.head = safetensors::format_header(header)};
  for (const auto& entry : header.tensors) file.tensors.push_back(by_name.at(entry.name));
  return file;
}

// The file `name` in the folder that rank 0 has made.
std::unique_ptr<storage::DurableFile> create_file(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                                  const std::string& name) {
  try {
    return std::make_unique<storage::DurableFile>(file_system, folder / name);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::no_such_file_or_directory) throw;
    throw std::runtime_error(std::string(error.what()) +
                             "; rank 0 has made this folder, but it is not found here: a sharded checkpoint needs "
                             "a directory that all ranks share");
  }
}

// The message of each rank to rank 0: why it failed, or the files that it has written.
template <typename Files>
std::string encode(const Failure& failure, const Files& files) {
  auto list = json::array();
  for (const auto& file : files) list.push_back({file.name, file.record.size, file.record.crc32c, file.blocks});
  const json message = {{"kind", static_cast<int>(failure.kind)}, {"text", failure.text}, {"files", list}};
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

Failure on_rank(size_t rank, Failure failure) {
  if (failure) failure.text = "on rank " + std::to_string(rank) + ": " + failure.text;
  return failure;
}

Failure failure_in(const std::vector<json>& messages) {
  Failure all;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const auto kind = static_cast<FailureKind>(messages[rank].at("kind").get<int>());
    if (kind == FailureKind::kNone) continue;
    all += on_rank(rank, {.kind = kind, .text = messages[rank].at("text").get<std::string>()});
  }
  return all;
}

}  // namespace

ShardedSave::ShardedSave(storage::FileSystem& file_system, const Notify& notify, DirectoryWriter* writer,
                         const GroupHandle& group, ShardedSaveOptions options)
    : file_system_(file_system), notify_(notify), writer_(writer), group_(group), options_(std::move(options)) {}

ShardedSave::~ShardedSave() {
  const auto failure = finish();
  if (failure && group_.rank() == 0) notify_(failure.text);
}

Failure ShardedSave::finish() {
  if (!under_way_.valid()) return {};
  return under_way_.get();
}

// Rank 0 creates the folder and sends its name to the other ranks.
Failure ShardedSave::open(const RunDestination& destination, Target& target) {
  target.destination = destination;
  Failure failure;
  if (writer_ != nullptr) {
    failure = on_rank(0, failure_of([&] {
                        writer_->claim();
                        target.destination.sequence = writer_->next_sequence();
                        target.staged = std::make_unique<storage::StagedFolder>(file_system_, destination.directory,
                                                                                destination.step);
                      }));
  }
  failure = failure_of_rank_0(failure, group_);
  if (failure) return failure;
  const auto name = target.staged ? target.staged->path().filename().string() : "";
  target.folder = options_.directory / broadcast_string(name, 0, group_);
  return {};
}

Failure ShardedSave::commit(Target& target, RunContent content, Failure failure, const std::vector<File>& files,
                            const GroupHandle& group) {
  std::vector<json> messages;
  for (const auto& text : all_gather_strings(encode(failure, files), group)) messages.push_back(json::parse(text));
  failure = failure_in(messages);
  if (target.staged && !failure) {
    failure = on_rank(0, failure_of([&] {
                        shards::BlockChecksums checksums;
                        for (const auto& message : messages) {
                          for (const auto& file : message.at("files")) {
                            const std::string name = file.at(0);
                            target.staged->adopt(name, {.size = file.at(1), .crc32c = file.at(2)});
                            checksums[name] = file.at(3).get<std::vector<uint32_t>>();
                          }
                        }
                        content.texts[shards::kBlockChecksumsFile] = shards::format_block_checksums(checksums);
                        finish_run(*target.staged, file_system_, target.destination, content, notify_);
                      }));
  }
  target.staged.reset();  // removes what was not committed
  return save_failure(target.destination.step, failure_of_rank_0(failure, group));
}

Failure ShardedSave::write_sync(const RunDestination& destination, const RunContent& content,
                                const ShardedContent& shards) {
  Target target;
  if (auto failure = open(destination, target)) return save_failure(destination.step, std::move(failure));
  std::vector<File> files;
  auto failure = failure_of([&] {
    for (const auto& [part, pieces] : shards) {
      const auto name = shards::shard_file_name(part, group_.rank(), group_.size());
      const auto planned = plan_file(pieces);
      const auto file = create_file(file_system_, target.folder, name);
      file->write(planned.head.data(), planned.head.size());
      for (const auto& tensor : planned.tensors) write_elements(*file, tensor);
      const auto record = file->finish();
      files.push_back({.name = name, .record = record, .blocks = file->blocks()});
    }
  });
  return commit(target, content, std::move(failure), files, group_);
}

Failure ShardedSave::write_async(const RunDestination& destination, RunContent content, const ShardedContent& shards) {
  const auto& committing = commit_group();
  auto target = std::make_shared<Target>();
  if (auto failure = open(destination, *target)) return save_failure(destination.step, std::move(failure));
  if (!queue_) queue_ = std::make_unique<StagingQueue>(options_.staging_bytes);
  // What rank 0 alone writes are views of texts; they stay as they are.
  queue_->open();
  under_way_ = std::async(std::launch::async, [this, target, content = std::move(content), committing]() mutable {
    std::vector<File> files;
    auto failure = failure_of([&] { files = write_staged(target->folder); });
    Failure outcome;
    auto broken =
        failure_of([&] { outcome = commit(*target, std::move(content), std::move(failure), files, committing); });
    if (!broken) return outcome;
    commit_group_->abort();  // the other ranks must not wait for this rank, which can no longer take part in a commit
    return save_failure(target->destination.step, std::move(broken));
  });
  try {
    stage(shards);
  } catch (...) {
    queue_->abandon();
    throw;
  }
  return {};
}

void ShardedSave::stage(const ShardedContent& shards) {
  for (const auto& [part, pieces] : shards) {
    auto planned = plan_file(pieces);
    queue_->begin_file(shards::shard_file_name(part, group_.rank(), group_.size()), std::move(planned.head));
    for (const auto& tensor : planned.tensors) queue_->append(tensor);
  }
  queue_->close();
}

// Writes all that is staged. After an error it still empties the queue: otherwise the staging thread would wait
// forever.
std::vector<ShardedSave::File> ShardedSave::write_staged(const std::filesystem::path& folder) {
  std::vector<File> files;
  std::unique_ptr<storage::DurableFile> file;
  Failure failure;
  const auto end_file = [&] {
    if (!file) return;
    files.back().record = file->finish();
    files.back().blocks = file->blocks();
    file.reset();
  };
  while (const auto item = queue_->next()) {
    if (failure) continue;
    failure = failure_of([&] {
      if (item->file) {
        end_file();
        files.push_back({.name = *item->file});
        file = create_file(file_system_, folder, *item->file);
      }
      file->write(item->bytes.data(), item->bytes.size());
    });
  }
  if (!failure) failure = failure_of(end_file);
  throw_if_failed(failure, "");
  return files;
}

const GroupHandle& ShardedSave::commit_group() {
  if (!commit_group_) {
    std::vector<int> ranks(static_cast<size_t>(group_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    // Here ranks wait for each other's disks. gloo waits without using a processor; shared memory would spin.
    commit_group_.emplace(*new_group(group_, ranks, {.backend = group_.size() > 1 ? "gloo" : ""}));
  }
  return commit_group_->handle();
}

}  // namespace ddp
