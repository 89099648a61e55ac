// A new folder that exists whole or not at all. No LibTorch.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::tool {

/// Throws std::invalid_argument, which names `target`, when something has that name.
void refuse_existing(const std::filesystem::path& target);

/// Written as `<target>.tmp-<id>` and renamed when it is complete. Without commit() the destructor removes it. Throws
/// std::system_error.
class NewFolder {
 public:
  /// Makes missing parents, too. Throws as refuse_existing() does.
  NewFolder(storage::FileSystem& file_system, const std::filesystem::path& target);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where its files are until commit().
  const std::filesystem::path& path() const { return temporary_; }

  /// A file in it, durable on return.
  void write(const std::string& name, const std::function<void(storage::ByteSink& sink)>& writer);

  /// Gives it its name, when all that it holds is on the disk.
  void commit();

 private:
  storage::FileSystem& file_system_;
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once it is committed
};

}  // namespace ddp::tool
