#include "checkpoint/folders/uncommitted_folder.h"

#include <algorithm>
#include <array>
#include <string>

#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/manifest.h"

namespace ddp {

void refuse_uncommitted(const std::filesystem::path& folder) {
  using storage::is_there;
  constexpr std::array kOwnFiles = {shards::kBlockChecksumsFile, "trainer.json", "ranks.safetensors"};
  const auto has_none = [&] { return !is_there(folder / storage::kManifestName); };
  if (!has_none()) return;
  const auto* found = std::ranges::find_if(kOwnFiles, [&](const char* name) { return is_there(folder / name); });
  // A writer may have replaced the folder between these checks.
  if (found == kOwnFiles.end() || !has_none() || !is_there(folder / *found)) return;
  storage::throw_damaged(
      folder,
      std::string("it has ") + *found + ", but no " + storage::kManifestName +
          ": it was not written completely, or its manifest was removed, so nothing tells whether its files are "
          "complete; load another checkpoint, or copy the files with weights into another folder and load that");
}

}  // namespace ddp
