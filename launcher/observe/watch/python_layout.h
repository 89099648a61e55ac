// Where CPython stores its threads, frames and code: offsets in the structures of its internal headers, by version.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>

namespace launcher {

// In 3.12 or later a frame with this owner, or a greater one, does not run code of the program.
inline constexpr std::uint8_t kOwnedByInterpreter = 3;

struct PythonLayout {
  int minor = 0;
  std::uint64_t runtime_interpreter = 0;  // _PyRuntimeState.interpreters.head
  std::uint64_t interpreter_threads = 0;
  std::uint64_t thread_next = 0;
  std::optional<std::uint64_t> thread_number{};  // the kernel's thread number; nothing: it is not stored
  std::uint64_t thread_frame = 0;                // or of the C frame, which has it:
  std::optional<std::uint64_t> frame_in_c_frame{};
  std::uint64_t frame_code = 0;
  std::uint64_t frame_previous = 0;
  std::uint64_t frame_instruction = 0;  // a pointer; in 3.10 the index of the instruction
  std::optional<std::uint64_t> frame_owner{};
  std::uint64_t code_file = 0;
  std::uint64_t code_name = 0;  // the qualified name, if there is one
  std::uint64_t code_first_line = 0;
  std::uint64_t code_lines = 0;
  std::uint64_t code_instructions = 0;
  std::uint64_t text_length = 16;
  std::uint64_t text_state = 32;
  std::uint64_t ascii_size = 48;
  std::uint64_t compact_size = 72;
  std::uint64_t bytes_size = 16;
  std::uint64_t bytes_data = 32;
};

inline constexpr PythonLayout kPython310{.minor = 10,
                                         .runtime_interpreter = 32,
                                         .interpreter_threads = 8,
                                         .thread_next = 8,
                                         .thread_frame = 24,
                                         .frame_code = 32,
                                         .frame_previous = 24,
                                         .frame_instruction = 96,
                                         .code_file = 104,
                                         .code_name = 112,
                                         .code_first_line = 40,
                                         .code_lines = 120};
inline constexpr PythonLayout kPython311{.minor = 11,
                                         .runtime_interpreter = 40,
                                         .interpreter_threads = 16,
                                         .thread_next = 8,
                                         .thread_number = 160,
                                         .thread_frame = 56,
                                         .frame_in_c_frame = 8,
                                         .frame_code = 32,
                                         .frame_previous = 48,
                                         .frame_instruction = 56,
                                         .code_file = 112,
                                         .code_name = 128,
                                         .code_first_line = 72,
                                         .code_lines = 136,
                                         .code_instructions = 184};
inline constexpr PythonLayout kPython312{.minor = 12,
                                         .runtime_interpreter = 40,
                                         .interpreter_threads = 72,
                                         .thread_next = 8,
                                         .thread_number = 144,
                                         .thread_frame = 56,
                                         .frame_in_c_frame = 0,
                                         .frame_code = 0,
                                         .frame_previous = 8,
                                         .frame_instruction = 56,
                                         .frame_owner = 70,
                                         .code_file = 112,
                                         .code_name = 128,
                                         .code_first_line = 68,
                                         .code_lines = 136,
                                         .code_instructions = 192,
                                         .ascii_size = 40,
                                         .compact_size = 56};

// 3.13 stores these offsets itself, in words at the beginning of _PyRuntime (_Py_DebugOffsets).
inline std::optional<PythonLayout> python_layout_313(const std::array<std::uint64_t, 71>& words) {
  constexpr std::uint64_t kMaxOffset = 1 << 20;
  std::uint64_t cookie = 0;
  std::memcpy(&cookie, "xdebugpy", sizeof cookie);
  if (words[0] != cookie || words[1] >> 16 != 0x030d) return std::nullopt;
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (words[i] > kMaxOffset) return std::nullopt;
  }
  return PythonLayout{.minor = 13,
                      .runtime_interpreter = words[5],
                      .interpreter_threads = words[9],
                      .thread_next = words[21],
                      .thread_number = words[25],
                      .thread_frame = words[23],
                      .frame_code = words[30],
                      .frame_previous = words[29],
                      .frame_instruction = words[31],
                      .frame_owner = words[33],
                      .code_file = words[35],
                      .code_name = words[37],
                      .code_first_line = words[39],
                      .code_lines = words[38],
                      .code_instructions = words[43],
                      .text_length = words[69],
                      .text_state = words[68],
                      .ascii_size = words[70],
                      .compact_size = words[70] + 16,
                      .bytes_size = words[65],
                      .bytes_data = words[66]};
}

inline std::optional<PythonLayout> python_layout(const std::function<bool(std::uint64_t, void*, std::size_t)>& read,
                                                 std::uint64_t runtime, int minor) {
  if (minor == 10) return kPython310;
  if (minor == 11) return kPython311;
  if (minor == 12) return kPython312;
  std::array<std::uint64_t, 71> words{};
  if (minor != 13 || !read(runtime, words.data(), sizeof words)) return std::nullopt;
  return python_layout_313(words);
}

}  // namespace launcher
