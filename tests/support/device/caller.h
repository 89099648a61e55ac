// Which code called LibTorch or the device.
#pragma once

#include <string>
#include <string_view>

namespace ddp::test::device {

/// Whether an object file is neither LibTorch nor the device itself.
bool is_under_test(std::string_view path);

/// The innermost frame of the code under test: the function's name where it is exported, else file and offset, for
/// addr2line. Where LibTorch does it of itself, "LibTorch".
std::string caller();

/// Whether LibTorch's c10d did what is going on, without the code under test in between.
bool is_called_by_c10d();

}  // namespace ddp::test::device
