// What a program that knows nothing of the devices is watched for: tests/support/main.cpp asks after each test case,
// and a program of its own is asked at its end.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::test::device {

/// What was wrong since the last call, and the memory of devices that is still held of what was allocated since then,
/// after a grace of 5 seconds for threads that let go late; "" when there is none. The host waits for the devices, whose
/// streams start anew; nothing else may use them meanwhile.
std::string look_back();

/// With DDPRUN_TEST_DEVICE_STRICT=1 the process says at its normal end what look_back() finds, and its exit status
/// is 97.
void watch_to_the_end();

}  // namespace ddp::test::device
