// Reports an exception that reaches main().
#pragma once

#include <exception>

namespace ddp {

/// Prints one line `rank R: <message>` to standard error and, under a launcher that set TORCHELASTIC_ERROR_FILE, writes
/// the message there (JSON as torchrun reads it, under a temporary name and then renamed) so that the launcher can show
/// it. Returns 1, the exit status for main: `catch (const std::exception& error) { return ddp::report(error); }`.
int report(const std::exception& error) noexcept;

}  // namespace ddp
