// The progress page of this process: the one that its launcher shares with it, or memory of its own under another
// launcher and in processes that a rank starts.
#pragma once

#include "base/progress/page_writer.h"
#include "base/timeline/records.h"

namespace ddp::detail {

// The variable with the number of the page's descriptor.
inline constexpr const char* kPageVariable = "DDPRUN_PROGRESS_FD";
// The variable with the number of the signal on which a rank leaves its stack in its page.
inline constexpr const char* kStackSignalVariable = "DDPRUN_STACK_SIGNAL";

// The page of this process, made at the first call. That call also installs the handler of the stack signal if the
// launcher has named a signal and the process has no handler for it.
PageWriter& own_page() noexcept;

// What a phase is in a timeline.
EventKind event_kind(progress::Phase phase) noexcept;

// A backward that reduces gradients is to come: its end is the end of a step.
void expect_step() noexcept;
// Ends the step, if one was expected and the program does not count them itself.
void finish_expected_step() noexcept;

}  // namespace ddp::detail
