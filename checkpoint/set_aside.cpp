#include "checkpoint/storage/set_aside.h"

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/failures.h"

namespace ddp {

std::optional<std::filesystem::path> CheckpointManager::set_aside() {
  claim();
  std::string folder;
  Failure failure;
  if (writer_) {
    failure = failure_of([&] {
      if (const auto aside = storage::set_aside_checkpoints(*options_.file_system, directory_))
        folder = aside->string();
    });
  }
  agree(failure, "cannot set an earlier run's checkpoints aside in");
  folder = broadcast_string(folder, 0, group_);
  if (folder.empty()) return std::nullopt;
  return folder;
}

}  // namespace ddp
