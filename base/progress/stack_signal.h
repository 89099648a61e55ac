// Leaves the stack of the interrupted thread in a progress page when a signal asks for it.
#pragma once

#include "base/progress/page.h"

namespace ddp::detail {

// Installs a handler, unless the program has one for this signal. `page` must outlive the process.
void take_stack_signal(int number, Page& page) noexcept;

}  // namespace ddp::detail
