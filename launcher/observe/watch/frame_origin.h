// Whose code a thread of a rank runs: the program's, LibTorch's, or ddprun's. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/elf_symbols.h"

namespace launcher {

// In the order in which threads are shown.
enum class FrameOrigin : std::uint8_t {
  kProgram,   // also libraries that are not listed below
  kLibTorch,  // LibTorch and the libraries of CUDA
  kDdprun,
  kSystem,  // the C and C++ libraries
};

// Returns "ddp::detail::read_batch" for "auto ddp::detail::read_batch<...>(Samples const&)": a demangled function name
// without its return type, template arguments and parameters.
std::string plain_function_name(std::string_view name);

// True for frames in the files of the C and C++ libraries, and for addresses that belong to no file.
bool is_in_system_file(const StackFrame& frame);

// Templates of the C++ library that are part of the program's file belong to kSystem.
FrameOrigin origin_of(const StackFrame& frame);

// `frames`: innermost first. A thread belongs to the program if one of its functions does. Otherwise its outermost
// function decides: LibTorch's threads call functions of ddprun, and ddprun's threads call functions of LibTorch.
FrameOrigin origin_of(const std::vector<StackFrame>& frames);

}  // namespace launcher
