// A host library as a program: runs kernels on a scene from a file and writes the volume's memory to another. For
// ThreadSanitizer, which does not live well inside a Python process.
//
//   run SCENE OUT THREADS ENTRY...
//
// SCENE: the Volume struct with null pointers, then i32 n, f32 camera[3], f32 points[3n], u8 colors[3n].
// OUT: the table, i32 count, u64 failed_inserts, u64 dropped_points, i32 coords[3 count], then count * 512 f32 of each
// of tsdf, weight, r, g, b. Byte order and padding are this machine's.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "launch.h"

namespace {

constexpr std::size_t BLOCK_VOXELS = 512;

template <class T>
void read(std::FILE* file, T* into, std::size_t count) {
  if (count != 0 && std::fread(into, sizeof(T), count, file) != count) {
    std::fprintf(stderr, "run: the scene file ends early\n");
    std::exit(1);
  }
}

template <class T>
void write(std::FILE* file, const T* from, std::size_t count) {
  if (count != 0 && std::fwrite(from, sizeof(T), count, file) != count) {
    std::perror("run: output");
    std::exit(1);
  }
}

std::FILE* open(const char* path, const char* mode) {
  std::FILE* file = std::fopen(path, mode);
  if (file == nullptr) {
    std::perror(path);
    std::exit(1);
  }
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: run SCENE OUT THREADS ENTRY...\n");
    return 2;
  }
  Volume volume;
  int n = 0;
  float camera[3];
  std::FILE* scene = open(argv[1], "rb");
  read(scene, &volume, 1);
  read(scene, &n, 1);
  read(scene, camera, 3);
  std::vector<float> points(3 * static_cast<std::size_t>(n));
  std::vector<unsigned char> colors(points.size());
  read(scene, points.data(), points.size());
  read(scene, colors.data(), colors.size());
  std::fclose(scene);

  const std::size_t capacity = volume.capacity;
  std::vector<Entry> table(volume.mask + std::size_t{1}, Entry{-1, -1, 0});
  std::vector<int> coords(3 * capacity);
  std::vector<float> voxels[5];
  for (auto& array : voxels) array.resize(capacity * BLOCK_VOXELS);
  int count = 0;
  unsigned long long failed_inserts = 0, dropped_points = 0;
  volume.table = table.data();
  volume.count = &count;
  volume.failed_inserts = &failed_inserts;
  volume.dropped_points = &dropped_points;
  volume.coords = coords.data();
  volume.tsdf = voxels[0].data();
  volume.weight = voxels[1].data();
  volume.r = voxels[2].data();
  volume.g = voxels[3].data();
  volume.b = voxels[4].data();

  for (int k = 4; k < argc; ++k) {
    const int status = irr_launch(argv[k], &volume, points.data(), colors.data(), n, camera[0], camera[1], camera[2],
                                  nullptr, std::atoi(argv[3]));
    if (status != 0) {
      std::fprintf(stderr, "run: there is no kernel %s\n", argv[k]);
      return 1;
    }
  }

  std::FILE* out = open(argv[2], "wb");
  write(out, table.data(), table.size());
  write(out, &count, 1);
  write(out, &failed_inserts, 1);
  write(out, &dropped_points, 1);
  write(out, coords.data(), 3 * static_cast<std::size_t>(count));
  for (const auto& array : voxels) write(out, array.data(), count * BLOCK_VOXELS);
  if (std::fclose(out) != 0) {
    std::perror(argv[2]);
    return 1;
  }
  return 0;
}
