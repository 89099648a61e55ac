// A checkpoint folder on its way to the disk: written beside its final place and renamed when it is complete, so that
// it exists whole or not at all (Pillai et al., OSDI '14). One process; no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/byte_sink.h"
#include "checkpoint/storage/manifest.h"

namespace ddp::storage {

/// Use: construct, write() each file, commit(). Without commit() the destructor removes what was written. Throws
/// std::system_error naming the path.
class StagedFolder {
 public:
  /// Creates `<directory>/step-N.tmp-<id>`, and missing parents.
  StagedFolder(FileSystem& file_system, std::filesystem::path directory, int64_t step);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  /// A file of the checkpoint, durable on return.
  void write(const std::string& name, const std::function<void(ByteSink& sink)>& writer);

  /// Takes up a file that another process has written into path(). Throws std::runtime_error when it is not there as
  /// `record` says: the processes then do not see the same directory.
  void adopt(const std::string& name, const FileRecord& record);

  /// Where the files are until commit().
  const std::filesystem::path& path() const { return temporary_; }

  /// Writes the manifest (its step and files are filled in here), makes everything durable and gives the folder its
  /// name, in place of an earlier checkpoint of the same step. Looks at what lies there under that name then, and takes
  /// it away again and throws DamagedCheckpoint when that is not what was written. Then points `latest` to it, which is
  /// a hint: a failure there is returned as text.
  std::string commit(Manifest manifest);

 private:
  void claim_name();
  void verify(const std::string& manifest_text);
  void restore_old_name() noexcept;

  FileSystem& file_system_;
  std::filesystem::path directory_;
  int64_t step_;
  std::string id_;
  std::filesystem::path final_;
  std::filesystem::path temporary_;  // empty once it is committed and cleaned up
  Manifest manifest_;
};

/// Removes a checkpoint so that no crash leaves half of it under its name.
void remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory, int64_t step);

/// Removes what killed processes have left, and puts back a checkpoint that one was about to replace. No process may be
/// writing there: for the holder of the WriterLock. Throws the first failure after all were tried.
void remove_leftovers(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace ddp::storage
