/**
 * A plugin of osls. With SOURCE_DATE_EPOCH, the seconds of the last change of the sources, the folder of the zips in S3 has
 * this time in its name in place of the current time: the same sources then make the same bytes of the template.
 */
module.exports = class {
  constructor(serverless) {
    const { SOURCE_DATE_EPOCH } = process.env;
    if (!SOURCE_DATE_EPOCH) return;
    const before = () => {
      const { service } = serverless;
      const { stage } = service.provider;
      const date = new Date(Number(SOURCE_DATE_EPOCH) * 1_000);
      const name = `${date.getTime()}-${date.toISOString()}`;
      service.package.artifactDirectoryName = `serverless/${service.service}/${stage}/${name}`;
    };
    this.hooks = { "package:initialize": before };
  }
};
