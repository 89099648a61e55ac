// Leaves out single event waits of the code under test, to see that their absence is noticed.
#pragma once

namespace ddp::test::device::mutation {

/// Whether the wait that is about to be queued is left out. Remembers its place.
bool is_left_out();

}  // namespace ddp::test::device::mutation
