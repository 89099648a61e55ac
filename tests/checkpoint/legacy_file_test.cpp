#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/pt/legacy_file.h"
#include "checkpoint/pt/pt_file.h"
#include "tests/checkpoint/legacy_forms.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using test::message_of;
using ::testing::HasSubstr;

std::string_view bytes_of(const PtFile& file, const std::string& name) {
  return file.bytes_of(file.root().find(name)->tensor());
}

PtFile open(const std::string& bytes) {
  return {storage::own_bytes(bytes), "old.pt"};
}

TEST(LegacyFile, TensorsFindTheirStorages) {
  const auto file = open(test::legacy_file());
  EXPECT_FALSE(file.has_checksums());
  EXPECT_EQ(bytes_of(file, "a"), "aaaabbbbcccc");
  EXPECT_EQ(bytes_of(file, "tied"), "bbbb");
  EXPECT_EQ(bytes_of(file, "view"), "cccc") << "a view of a storage, as files of PyTorch 0.3 have";
  EXPECT_EQ(bytes_of(file, "b"), "xy");
}

TEST(LegacyFile, EveryCutAndEveryExtensionIsNoticed) {
  const auto file = test::legacy_file();
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(open(file.substr(0, size)), std::runtime_error) << size;
  }
  EXPECT_THAT(message_of([&] { open(file + "x"); }), HasSubstr("something appended"));
}

TEST(LegacyFile, SizesThatContradictThePickleAreRefused) {
  auto file = test::legacy_file();
  const auto at = file.rfind("\3\0\0\0\0\0\0\0aaaa"s);
  file[at] = 2;
  EXPECT_THAT(message_of([&] { open(file); }), HasSubstr("has 2 elements where the pickle says 3"));
  file[at] = 3;
  file[at + 7] = '\x7f';
  EXPECT_THAT(message_of([&] { open(file); }), HasSubstr("has 9151314442816847875 elements"));
}

TEST(LegacyFile, WhatComesBeforeThePickleIsChecked) {
  auto file = test::legacy_file();
  file[18] = 7;
  EXPECT_THAT(message_of([&] { open(file); }), HasSubstr("protocol version is unknown"));
}

TEST(LegacyFile, ATarArchiveIsRefusedWithAWayOut) {
  auto file = std::string(1024, '\0');
  file.replace(257, 5, "ustar");
  EXPECT_TRUE(looks_like_pt(file));
  EXPECT_THAT(message_of([&] { open(file); }), HasSubstr("load it in Python"));
}

}  // namespace
}  // namespace ddp::pt
