// What --cmake-prefix-path prints: where CMake finds the ddprun that this launcher was installed with, and its
// LibTorch.
#pragma once

#include <filesystem>
#include <string>

namespace launcher {

struct CmakePrefixes {
  std::filesystem::path package;  // the folder that ddprun was installed into; empty: its CMake package is not there
  std::filesystem::path torch;    // torch.utils.cmake_prefix_path of the same environment; empty: it has no PyTorch
};

// `program` is the launcher's own file, PREFIX/bin/ddprun. Where several Pythons have a PyTorch, the newest one's.
CmakePrefixes find_cmake_prefixes(const std::filesystem::path& program);

// As CMAKE_PREFIX_PATH takes it, on one line.
std::string to_text(const CmakePrefixes& prefixes);

}  // namespace launcher
