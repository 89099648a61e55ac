// What the protocol of checkpoints takes for granted of the file system, on the real one.
#include "ddprun/detail/checkpoint/storage/file_system.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

// The number of the system's reason, or 0.
template <typename Body>
int code_of(Body&& body) {
  try {
    body();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

bool is_closed(int number) {
  return ::fcntl(number, F_GETFD) < 0 && errno == EBADF;
}

class Files {
 protected:
  std::string read(const fs::path& path, size_t size, uint64_t position = 0) {
    std::string text(size, '?');
    files_.read(files_.open(path), text.data(), size, position, path);
    return text;
  }

  TemporaryFolder folder_;
  FileSystem files_;
};

TEST_CASE_METHOD(Files, "FileDescriptor: closes once, also when it was moved") {
  auto first = files_.create(folder_ / "a");
  const int number = first.get();
  FileDescriptor second(std::move(first));
  CHECK_FALSE(first.is_open());
  auto& self = second;
  second = std::move(self);
  UNSCOPED_INFO("moved into itself");
  CHECK((second.get() == number && !is_closed(number)));
  auto other = files_.create(folder_ / "b");
  const int others = other.get();
  other = std::move(second);
  CHECK(is_closed(others));
  CHECK(other.get() == number);
  const int released = other.release();
  CHECK_FALSE(other.is_open());
  { FileDescriptor last(released); }
  CHECK(is_closed(number));
}

TEST_CASE_METHOD(Files, "FileSystem: no program that is started inherits a file") {
  write_file(folder_ / "old", "x");
  const auto created = files_.create(folder_ / "new");
  const auto opened = files_.open(folder_ / "old");
  const auto locked = files_.open_lock(folder_ / "lock");
  for (const auto* file : {&created, &opened, &locked}) CHECK((::fcntl(file->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE_METHOD(Files, "FileSystem: create never touches what is there") {
  write_file(folder_ / "file", "kept");
  fs::create_symlink(folder_ / "target", folder_ / "link");
  CHECK(code_of([&] { files_.create(folder_ / "file"); }) == EEXIST);
  UNSCOPED_INFO("not through a link to nothing either");
  CHECK(code_of([&] { files_.create(folder_ / "link"); }) == EEXIST);
  CHECK(read_file(folder_ / "file") == "kept");
  CHECK_FALSE(fs::exists(folder_ / "target"));
  CHECK_THAT(error_of([&] { files_.create(folder_ / "none" / "file"); }),
             ContainsSubstring((folder_ / "none" / "file").string()) && ContainsSubstring("No such file"));
}

TEST_CASE_METHOD(Files, "FileSystem: only regular files are opened, and nothing is waited for") {
  REQUIRE(::mkfifo((folder_ / "pipe").c_str(), 0600) == 0);
  fs::create_symlink("loop", folder_ / "loop");
  write_file(folder_ / "file", "text");
  fs::create_symlink("file", folder_ / "link");
  UNSCOPED_INFO("a pipe without a writer");
  CHECK(code_of([&] { files_.open(folder_ / "pipe"); }) == EINVAL);
  CHECK(code_of([&] { files_.open(folder_.path()); }) == EISDIR);
  CHECK(code_of([&] { files_.open("/dev/null"); }) == EINVAL);
  CHECK(code_of([&] { files_.open(folder_ / "loop"); }) == ELOOP);
  CHECK(code_of([&] { files_.open(folder_ / "file/"); }) == ENOTDIR);
  CHECK(code_of([&] { files_.open(""); }) == ENOENT);
  CHECK(code_of([&] { files_.open(folder_ / std::string(256, 'n')); }) == ENAMETOOLONG);
  CHECK(code_of([&] { files_.open(std::string(5000, '/') + "x"); }) == ENAMETOOLONG);
  CHECK(read(folder_ / "link", 4) == "text");
}

TEST_CASE_METHOD(Files, "FileSystem: a read gives all bytes or fails") {
  write_file(folder_ / "file", "0123456789");
  CHECK(read(folder_ / "file", 4, 3) == "3456");
  CHECK(read(folder_ / "file", 0, 10).empty());
  CHECK(code_of([&] { read(folder_ / "file", 11); }) == EIO);
  CHECK_THAT(error_of([&] { read(folder_ / "file", 1, 10); }), ContainsSubstring("became shorter"));
  UNSCOPED_INFO("a position that no file has");
  CHECK(code_of([&] { read(folder_ / "file", 1, ~uint64_t{0}); }) == EINVAL);
}

TEST_CASE_METHOD(Files, "FileSystem: positions and sizes above 4 GiB are whole numbers") {
  const uint64_t begin = (uint64_t{5} << 32) + 7;
  {
    const FileDescriptor file(::open((folder_ / "large").c_str(), O_WRONLY | O_CREAT, 0600));
    if (::ftruncate(file.get(), static_cast<off_t>(begin)) != 0) SKIP("no files of 20 GiB on this file system");
    REQUIRE(::pwrite(file.get(), "end", 3, static_cast<off_t>(begin)) == 3);
  }
  CHECK(read(folder_ / "large", 3, begin) == "end");
  CHECK(files_.size(files_.open(folder_ / "large"), folder_ / "large") == begin + 3);
}

TEST_CASE_METHOD(Files, "FileSystem: a write at the limit of sizes is short, then an error, and no signal stays") {
  const auto child = ::fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 10, .rlim_max = 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    sigset_t before, after, pending;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    const auto file = files_.create(folder_ / "file");
    if (files_.write(file, "0123456789abc", 13, folder_ / "file") != 10) ::_exit(2);
    if (code_of([&] { files_.write(file, "abc", 3, folder_ / "file"); }) != EFBIG) ::_exit(3);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
    ::sigpending(&pending);
    if (::sigismember(&before, SIGXFSZ) != ::sigismember(&after, SIGXFSZ)) ::_exit(4);
    ::_exit(::sigismember(&pending, SIGXFSZ) == 0 ? 0 : 5);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  UNSCOPED_INFO(status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(read_file(folder_ / "file") == "0123456789");
}

TEST_CASE_METHOD(Files, "FileSystem: a signal that the program awaits itself is not swallowed by a write") {
  const auto child = ::fork();
  if (child == 0) {
    sigset_t signal, pending;
    ::sigemptyset(&signal);
    ::sigaddset(&signal, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal, nullptr);
    ::pthread_kill(::pthread_self(), SIGXFSZ);
    files_.write(files_.create(folder_ / "file"), "text", 4, folder_ / "file");
    ::sigpending(&pending);
    ::_exit(::sigismember(&pending, SIGXFSZ) == 1 ? 0 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

std::atomic<int> signals_seen{0};

TEST_CASE_METHOD(Files, "FileSystem: a write that a signal interrupts goes on") {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++signals_seen; };  // without SA_RESTART
  ::sigaction(SIGUSR2, &action, &before);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const FileDescriptor reader(ends[0]), writer(ends[1]);
  ::fcntl(writer.get(), F_SETFL, O_NONBLOCK);
  const std::string block(4096, 'x');
  while (::write(writer.get(), block.data(), block.size()) > 0) {
  }
  ::fcntl(writer.get(), F_SETFL, 0);
  std::atomic<bool> has_ended = false;
  std::string failure = "none";
  std::thread thread([&] {
    failure = error_of([&] { files_.write(writer, block.data(), block.size(), "pipe"); });
    has_ended = true;
  });
  // The pipe is full: until somebody reads, the write cannot end otherwise than by a signal.
  for (int sent = 0; sent < 5 && !has_ended; ++sent) {
    ::pthread_kill(thread.native_handle(), SIGUSR2);
    while (signals_seen <= sent && !has_ended) std::this_thread::yield();
  }
  CHECK_FALSE(has_ended);
  std::string sink(1 << 20, '\0');
  // Not one that waits: when the write has ended, no more comes.
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  while (!has_ended) {
    if (::read(reader.get(), sink.data(), sink.size()) <= 0) std::this_thread::yield();
  }
  thread.join();
  ::sigaction(SIGUSR2, &before, nullptr);
  CHECK(failure == "no error");
}

// Records which folders were made durable.
class SyncedFolders : public FileSystem {
 public:
  void sync_folder(const fs::path& path) override {
    FileSystem::sync_folder(path);
    synced.push_back(path.filename().string());
  }
  std::vector<std::string> synced{};
};

TEST_CASE_METHOD(Files, "FileSystem: missing folders are made, each durable in its parent") {
  SyncedFolders files;
  fs::create_directory(folder_ / "top");
  files.make_folders(folder_ / "top" / "a" / "b");
  CHECK(fs::is_directory(folder_ / "top" / "a" / "b"));
  CHECK_THAT(files.synced, ElementsAre("top", "a"));
  files.make_folders(folder_ / "top" / "a" / "b");
  UNSCOPED_INFO("nothing was missing");
  CHECK(files.synced.size() == 2);
}

TEST_CASE_METHOD(Files, "FileSystem: folders may be spelled in any way") {
  const auto spelling = GENERATE(as<std::string>(), "a/b/", "a//b///", "./a/./b", "x/../a/b", "l/b", "a/b/.",
                                 "\xc3\xa4/\xff\xfe", "a/b/../../a/b");
  CAPTURE(spelling);
  fs::create_directory(folder_ / "real");
  fs::create_symlink("real", folder_ / "l");
  files_.make_folders(folder_ / spelling);
  CHECK(fs::is_directory(folder_ / spelling));
  files_.make_folders(folder_ / spelling);
}

TEST_CASE_METHOD(Files, "FileSystem: relative folders are made where the process stands") {
  const auto before = fs::current_path();
  fs::current_path(folder_.path());
  const auto failure = error_of([&] { files_.make_folders("runs/first"); });
  const auto nothing = error_of([&] { files_.make_folders(""); });
  fs::current_path(before);
  CHECK(failure == "no error");
  CHECK(nothing == "no error");
  CHECK(fs::is_directory(folder_ / "runs/first"));
}

TEST_CASE_METHOD(Files, "FileSystem: what is in a folder's way is named") {
  write_file(folder_ / "file", "kept");
  fs::create_symlink("nowhere", folder_ / "dangling");
  for (const auto* path : {"file", "file/a", "file/a/b", "dangling", "dangling/a"}) {
    INFO(path);
    const auto message = error_of<std::system_error>([&] { files_.make_folders(folder_ / path); });
    CHECK_THAT(message, ContainsSubstring("cannot create the folder " + folder_.path().string()));
  }
  CHECK(read_file(folder_ / "file") == "kept");
  CHECK(code_of([&] { files_.make_folders(folder_ / std::string(300, 'x')); }) == ENAMETOOLONG);
  CHECK(code_of([&] { files_.make_folder(folder_ / "file"); }) == EEXIST);
}

TEST_CASE_METHOD(Files, "FileSystem: several may make the same folders at once") {
  std::atomic<int> ready{0};
  std::vector<std::string> failures(4);
  std::vector<std::thread> threads;
  for (auto& failure : failures) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < 4) std::this_thread::yield();
      failure = error_of([&] {
        for (int i = 0; i < 50; ++i) files_.make_folders(folder_ / std::to_string(i) / "a" / "b");
      });
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) CHECK(failure == "no error");
}

TEST_CASE_METHOD(Files, "FileSystem: a folder that cannot be opened is not a folder to flush") {
  write_file(folder_ / "file", "");
  CHECK(code_of([&] { files_.sync_folder(folder_ / "none"); }) == ENOENT);
  CHECK(code_of([&] { files_.sync_folder(folder_ / "file"); }) == ENOTDIR);
  files_.sync_folder(folder_.path());
}

TEST_CASE_METHOD(Files, "FileSystem: a name is given to a file in place of a file alone") {
  write_file(folder_ / "new", "new");
  write_file(folder_ / "old", "old");
  files_.make_folders(folder_ / "full" / "inside");
  files_.make_folder(folder_ / "other");
  files_.rename(folder_ / "new", folder_ / "old");
  CHECK(read_file(folder_ / "old") == "new");
  CHECK(code_of([&] { files_.rename(folder_ / "old", folder_ / "full"); }) == EISDIR);
  CHECK(code_of([&] { files_.rename(folder_ / "other", folder_ / "old"); }) == ENOTDIR);
  const auto full = code_of([&] { files_.rename(folder_ / "other", folder_ / "full"); });
  CHECK((full == ENOTEMPTY || full == EEXIST));
  CHECK_THAT(error_of([&] { files_.rename(folder_ / "none", folder_ / "final"); }),
             ContainsSubstring("cannot rename the temporary file or folder to " + (folder_ / "final").string()));
}

TEST_CASE_METHOD(Files, "FileSystem: names are exchanged in one step, or nothing happens") {
  files_.make_folders(folder_ / "folder" / "inside");
  write_file(folder_ / "file", "text");
  if (!files_.exchange(folder_ / "folder", folder_ / "file")) SKIP("this file system exchanges no names");
  CHECK(fs::is_directory(folder_ / "file" / "inside"));
  CHECK(read_file(folder_ / "folder") == "text");
  CHECK(code_of([&] { files_.exchange(folder_ / "file", folder_ / "none"); }) == ENOENT);
  CHECK(fs::is_directory(folder_ / "file" / "inside"));
}

TEST_CASE_METHOD(Files, "FileSystem: removing follows no link") {
  write_file(folder_ / "precious", "kept");
  files_.make_folders(folder_ / "doomed" / "deep" / "deeper");
  fs::create_symlink(folder_.path(), folder_ / "doomed" / "deep" / "up");
  fs::create_symlink("nowhere", folder_ / "doomed" / "dangling");
  fs::create_directory_symlink(folder_ / "doomed", folder_ / "link");
  files_.remove(folder_ / "link");
  CHECK(fs::is_directory(folder_ / "doomed" / "deep" / "deeper"));
  files_.remove(folder_ / "doomed");
  files_.remove(folder_ / "doomed");
  CHECK_THAT(files_.entries(folder_.path()), ElementsAre("precious"));
  CHECK(read_file(folder_ / "precious") == "kept");
}

TEST_CASE_METHOD(Files, "FileSystem: entries are the names' bytes in order") {
  for (const auto* name : {"b", "a", "B", "\xff", "\xc3\xa4", ".hidden"}) write_file(folder_ / name, "");
  fs::create_symlink("nowhere", folder_ / "dangling");
  CHECK_THAT(files_.entries(folder_.path()), ElementsAre(".hidden", "B", "a", "b", "dangling", "\xc3\xa4", "\xff"));
  CHECK_THAT(files_.entries(folder_ / "none"), IsEmpty());
  CHECK(code_of([&] { files_.entries(folder_ / "a"); }) == ENOTDIR);
}

TEST_CASE_METHOD(Files, "FileSystem: a lock is one opening's, and ends with it") {
  const auto path = folder_ / "lock";
  auto first = files_.open_lock(path);
  const auto second = files_.open_lock(path);
  if (files_.lock(first, path) == LockResult::kUnsupported) SKIP("this file system has no locks");
  CHECK(files_.lock(first, path) == LockResult::kTaken);
  CHECK(files_.lock(second, path) == LockResult::kHeld);
  files_.unlock(first);
  CHECK(files_.lock(second, path) == LockResult::kTaken);
  CHECK(files_.lock(first, path) == LockResult::kHeld);
}

TEST_CASE_METHOD(Files, "FileSystem: the file of a lock is not a link and waits for nobody") {
  write_file(folder_ / "precious", "kept");
  fs::create_symlink("precious", folder_ / "link");
  CHECK(code_of([&] { files_.open_lock(folder_ / "link"); }) == ELOOP);
  REQUIRE(::mkfifo((folder_ / "pipe").c_str(), 0600) == 0);
  CHECK(code_of([&] { files_.open_lock(folder_ / "pipe"); }) == 0);
  CHECK(code_of([&] { files_.open_lock(folder_.path()); }) == EISDIR);
}

TEST_CASE_METHOD(Files, "FileSystem: knows whether a path still names what is open") {
  const auto path = folder_ / "file";
  const auto file = files_.create(path);
  CHECK(files_.is_named(file, path));
  fs::create_hard_link(path, folder_ / "second");
  CHECK(files_.is_named(file, folder_ / "second"));
  fs::create_symlink("file", folder_ / "link");
  UNSCOPED_INFO("a link to it is another file");
  CHECK_FALSE(files_.is_named(file, folder_ / "link"));
  fs::rename(path, folder_ / "elsewhere");
  CHECK_FALSE(files_.is_named(file, path));
  write_file(path, "");
  CHECK_FALSE(files_.is_named(file, path));
  CHECK_FALSE(files_.is_named(FileDescriptor(), path));
}

TEST_CASE_METHOD(Files, "FileSystem: overwriting leaves nothing of what was there") {
  const auto path = folder_ / "file";
  write_file(path, "a long text of somebody else");
  const auto file = files_.open_lock(path);
  for (const auto* text : {"long enough", "short", ""}) {
    files_.overwrite(file, text, path);
    CHECK(read_file(path) == text);
  }
}

}  // namespace
}  // namespace ddp::storage
