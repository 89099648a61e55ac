// Folders of this project's checkpoints that have no manifest. No LibTorch.
#pragma once

#include <filesystem>

namespace ddp {

/// Throws storage::DamagedCheckpoint for a folder with a file that checkpoints of this project alone have, but without
/// their manifest: it was not written to the end, or has lost it. Folders of others' weights pass.
void refuse_uncommitted(const std::filesystem::path& folder);

}  // namespace ddp
