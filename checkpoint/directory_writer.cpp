#include "checkpoint/directory_writer.h"

#include <system_error>
#include <utility>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"

namespace ddp {

Failure save_failure(int64_t step, Failure failure) {
  if (failure) failure.text = "step " + std::to_string(step) + " was not saved: " + failure.text;
  return failure;
}

DirectoryWriter::DirectoryWriter(storage::FileSystem& file_system, const Notify& notify,
                                 std::filesystem::path directory)
    : file_system_(file_system),
      notify_(notify),
      directory_(std::move(directory)),
      lock_(file_system, directory_, /*rank=*/0) {}

DirectoryWriter::~DirectoryWriter() {
  const auto failure = finish();
  if (failure) notify_(failure.text);
}

Failure DirectoryWriter::finish() {
  if (!under_way_.valid()) return {};
  return under_way_.get();
}

void DirectoryWriter::claim() {
  if (!lock_.hold()) return;
  if (!lock_.excludes_others()) {
    if (!std::exchange(has_warned_, true)) {
      notify_(directory_.string() +
              " is on a file system without locks: make sure that no other process saves there; leftovers of "
              "interrupted saves are not removed");
    }
    return;
  }
  clean();
  is_counted_ = false;
}

void DirectoryWriter::write_sync(RunDestination destination, const RunContent& content) {
  claim();
  destination.sequence = next_sequence();
  write_run(file_system_, destination, content, notify_);
}

void DirectoryWriter::write_async(const RunDestination& destination, RunContent content) {
  try {
    claim();
  } catch (const std::system_error&) {
    // The thread meets the same error, and finish() returns it.
  }
  for (auto& [file, part] : content.safetensors) part.tensors = snapshot_.take(file, part.tensors);
  under_way_ = std::async(std::launch::async, [this, destination, content = std::move(content)] {
    auto failure = failure_of([&] {
      snapshot_.wait();
      write_sync(destination, content);
    });
    return save_failure(destination.step, std::move(failure));
  });
}

int64_t DirectoryWriter::next_sequence() {
  if (!is_counted_ || !lock_.excludes_others()) {
    last_sequence_ = storage::last_sequence(file_system_, directory_);
    is_counted_ = true;
  }
  return ++last_sequence_;
}

// What killed processes left; best effort, since nothing depends on it.
void DirectoryWriter::clean() {
  const auto failure = failure_of([&] { storage::remove_leftovers(file_system_, directory_); });
  if (failure) notify_("cannot remove the leftovers of an interrupted save: " + failure.text);
}

}  // namespace ddp
