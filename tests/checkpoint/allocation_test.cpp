// Readers of hostile files allocate no more than the file justifies: the peak of all allocations is measured.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <new>
#include <string>

#include "checkpoint/pt/unpickler.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/storage/manifest.h"

namespace {

size_t allocated = 0;
size_t peak = 0;

void* count_and_allocate(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  allocated += ::malloc_usable_size(memory);
  peak = std::max(peak, allocated);
  return memory;
}

void count_and_free(void* memory) {
  if (memory != nullptr) allocated -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  return count_and_allocate(size);
}
void* operator new[](size_t size) {
  return count_and_allocate(size);
}
void operator delete(void* memory) noexcept {
  count_and_free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  count_and_free(memory);
}
void operator delete[](void* memory) noexcept {
  count_and_free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  count_and_free(memory);
}

namespace ddp {
namespace {

// Bytes allocated at the worst moment of `read(text)`, in multiples of the text.
template <typename Read>
double cost(const std::string& text, Read&& read) {
  const auto before = allocated;
  peak = allocated;
  try {
    read(text);
  } catch (const std::exception&) {
  }
  return static_cast<double>(peak - before) / static_cast<double>(text.size());
}

std::string repeated(const std::string& front, const std::string& piece, size_t count, const std::string& end) {
  std::string text = front;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text + end;
}

TEST(Allocation, ParsingASafetensorsHeaderTakesAtMostSixteenTimesItsSize) {
  const auto parse = [](const std::string& text) { safetensors::parse_header(text, 0); };
  const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string tensors = "{", metadata = "{\"__metadata__\":{";
  for (size_t i = 0; i < 60'000; ++i) {
    std::string name;
    for (auto rest = i; name.empty() || rest > 0; rest /= digits.size()) name += digits[rest % digits.size()];
    std::string comma = i > 0 ? "," : "";
    tensors += comma + "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    metadata += comma + "\"" + name + "\":\"\"";
  }
  EXPECT_LE(cost(tensors + "}", parse), 16);
  EXPECT_LE(cost(metadata + "}}", parse), 16);
  EXPECT_LE(cost(repeated("{\"a\":{\"shape\":[", "0,", 500'000, "0]}}"), parse), 16);
  EXPECT_LE(cost(repeated("{\"a\":", "[", 1'000'000, ""), parse), 16);
  EXPECT_LE(cost(repeated("{\"a\":", "{\"a\":", 300'000, ""), parse), 16);
  EXPECT_LE(cost(repeated("{\"", "a", 1'000'000, "\":1}"), parse), 16);
  EXPECT_LE(cost(repeated("{\"__metadata__\":{\"a\":\"", "\\u00e9", 200'000, "\"}}"), parse), 16);
}

TEST(Allocation, ParsingAManifestTakesAtMostSixteenTimesItsSize) {
  storage::Manifest manifest;
  for (int i = 0; i < 9'000; ++i) {
    std::string name = "f";
    name += std::to_string(i);
    manifest.files[name] = {.size = 1, .crc32c = 2};
  }
  EXPECT_LE(cost(storage::format_manifest(manifest), [](const std::string& text) { storage::parse_manifest(text); }),
            16);
}

// A pickle's opcodes are single bytes, and each may make a value: the factor is larger, but it is a factor.
TEST(Allocation, APickleTakesMemoryInProportionToItsSize) {
  const auto read = [](const std::string& text) { pt::unpickle(text); };
  for (const char* opcode : {"N", "]", "}", ")", "(", "K\1", "X\0\0\0\0", "]q\1", "N\x85", "(t"}) {
    EXPECT_LE(cost(repeated("\x80\2", opcode, 300'000, "."), read), 160) << opcode;
  }
  EXPECT_LE(cost(std::string("\x80\2X\xff\xff\xff\x7f", 7), read) * 7, 16'384) << "a length that is not there";
  EXPECT_LE(cost(std::string("\x80\2Nr\xff\xff\xff\x7f", 8), read) * 8, 16'384) << "a number that is not there";
}

}  // namespace
}  // namespace ddp
