// The progress page of this process: the page shared with ddprun, or private memory under another launcher and in child
// processes of a rank.
#pragma once

#include "base/progress/page_writer.h"
#include "base/timeline/records.h"

namespace ddp::detail {

// The environment variable with the number of the page's file descriptor.
inline constexpr const char* kPageVariable = "DDPRUN_PROGRESS_FD";
// The environment variable with the number of the signal that makes a rank store its stack in its page.
inline constexpr const char* kStackSignalVariable = "DDPRUN_STACK_SIGNAL";

// The page of this process, created by the first call. That call also installs the stack signal handler if the launcher
// has chosen a signal and the process does not handle it yet.
PageWriter& own_page() noexcept;

// The kind of timeline event for a phase.
EventKind event_kind(progress::Phase phase) noexcept;

// Announces a backward pass that reduces gradients: the step ends when that pass ends.
void expect_step() noexcept;
// Ends the step if one was announced and the program does not count steps itself.
void finish_expected_step() noexcept;

}  // namespace ddp::detail
