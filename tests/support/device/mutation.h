// Leaves out single event waits, or record_stream()s, of the code under test, to see that their absence is noticed.
#pragma once

namespace ddp::test::device::mutation {

enum class Act { kWait, kRecordStream };

/// Whether what is about to be done is left out. Remembers its place.
bool is_left_out(Act act);

}  // namespace ddp::test::device::mutation
