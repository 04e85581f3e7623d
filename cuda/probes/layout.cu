// The volume's layout as this compiler sees it, for the check that every language agrees. The list is generated with
// the structs: size of Entry, size of Volume, then offset and size of every field.
#include "target.cuh"
#include "volume.cuh"

extern "C" __device__ const unsigned irr_volume_layout[] = {IRR_VOLUME_LAYOUT};
