// What the readers of data files promise, whatever the file holds: a DataError, of one line, that names it.
#pragma once

#include <ddprun/data/byte_source.h>

#include "tests/fuzz/fuzz.h"

namespace fuzz {

/// Calls `read`, which reads the file `path` and checks what it got.
template <typename Read>
Outcome may_refuse(const std::filesystem::path& path, const Read& read) {
  try {
    read();
    return Outcome::kAccepted;
  } catch (const ddp::DataError& error) {
    require(error.path() == path, "the error names the file");
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "the error is one line");
    return Outcome::kRefused;
  }
}

}  // namespace fuzz
