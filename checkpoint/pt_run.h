// A training run that Python, or ddprun-checkpoint, saved as one .pt file, as the files of a checkpoint folder. Not
// installed.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/run_reader.h"

namespace ddp {

/// Reads the parts that pt::find_run() finds into memory. `key` is LoadOptions::key; `world_size` stands for the number
/// of ranks that saved the file where that does not tell. Throws std::system_error or std::runtime_error naming the
/// file. One process.
ReceivedRun read_pt_run(const std::filesystem::path& path, const std::string& key, int world_size);

}  // namespace ddp
